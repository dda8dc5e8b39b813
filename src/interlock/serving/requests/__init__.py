"""The bodies of requests, and code that the rest of serving shares.

body              reads a body within limits, and decodes it to a JSON object
create            validates requests for responses and conversations
messages_request  reads requests of Anthropic's Messages
chat_request      reads requests of OpenAI's Chat Completions
limits            the fields that are read, their limits, and the errors for other values
input_items       validates, joins and normalizes the items of a conversation, and keeps them within the context window
tool_offer        translates tools to functions, and declares the hosted tools
logs              the lines of the log, and what they say of their request
api_errors        the errors of serving
api_keys          API keys and their tenants
runtime           the event loop, and which exceptions are faults
"""
