"""The bodies of requests, and code that the rest of serving shares.

body              decodes bytes to a JSON object, within limits
create            validates requests for responses and conversations
messages_request  reads requests of Anthropic's Messages
chat_request      reads requests of OpenAI's Chat Completions
limits            the fields that are read, and their limits
refusals          errors for invalid parameters, in the words of OpenAI's API
input_items       validates and joins conversation items
tool_offer        translates tools to functions, and declares the hosted tools
normalize         converts a conversation to items that every engine can render
async_call_table  a call of an async tool and its late outputs, as a table
context_window    compaction and truncation of conversations
logs              the lines of the log, and what they say of their request
api_errors        the errors of serving
api_keys          API keys and their tenants
runtime           the event loop, and which exceptions are faults
"""
