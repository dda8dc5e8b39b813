"""The bodies of requests, and code that the rest of serving shares.

body             decodes bytes to a JSON object, within limits
create           validates the bodies of requests for responses and conversations
limits           the fields that are read, and their limits
refusals         errors for invalid parameters, in the words of OpenAI's API
input_items      validates and joins the items of a conversation
tool_offer       translates tools to functions
hosted_tools     the names of the hosted tools
normalize        items that every engine can render
context_window   compaction and truncation of conversations
json_values      access to JSON values of unknown type
api_errors       the errors of serving
containment      tells faults from the signals of Python
api_keys         API keys and their tenants
identity         random ids and the clock
yielder          yields to the event loop during long work
"""
