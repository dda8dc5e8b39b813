"""What the body of a request may say.

body                 bytes as a JSON object
json_values          JSON of unknown shape
limits               what is read of items, tools and formats, and how long it may be
refusals             what is wrong, in the words of OpenAI's API
json_schema          what a JSON schema looks like
create               the whole body as one object
input_items          the items of a request's input, and of what came before it
conversation_bodies  the bodies of requests about conversations
tool_offer           what a model that knows functions alone is offered of the tools
hosted_tools         the hosted tools that an operator can configure
normalize            a conversation as every engine can render it
summaries            what a summary takes the place of
truncation           which turns go when a conversation is too long
api_errors           the errors of serving
containment          whatever may be raised, and what it means
api_keys             API keys and tenants
identity             ids that nobody can guess, and the clock
yielder              work that lets others run in between
"""
