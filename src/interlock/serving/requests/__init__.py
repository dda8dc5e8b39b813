"""What the body of a request may say.

body           bytes as a JSON object
values         JSON of unknown shape
limits         what is read of items, tools and formats, and how long it may be
refusals       what is wrong, in the words of OpenAI's API
schema         what a JSON schema looks like
create         the whole body as one object
conversation   the items of a request's input, and of what came before it
conversations  the bodies of requests about conversations
offer          what a model that knows functions alone is offered of the tools
hosted_tools   the hosted tools that an operator can configure
plain          a conversation as every engine can render it
compaction     what a summary takes the place of
truncation     which turns go when a conversation is too long
errors         the errors of serving
faults         whatever may be raised, and what it means
keys           API keys and tenants
identity       ids that nobody can guess, and the clock
pace           work that lets others run in between
"""
