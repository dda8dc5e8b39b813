"""Responses in progress, from the request to the stored response.

service              resolves a request, and admits its run
context              a request and the conversation that it continues
run                  makes one response: executes the turn loop
delivery             what a run has for its client, and how it waits
compaction           the summary that replaces a conversation
turns_table          the loop over the turns of a response, as a table
observation          what a run adds to the metrics, the traces and the log
active_runs          the responses in progress, and the limit on their number in all processes of a server
background_response  writes the events of a background response to a store
background_table     the owner of a background response, as a table
archive              the stored responses, and the events of background responses
conversation_lease   the lease of a response on its conversation
sealing              encrypted content, which clients carry and only the server can read
"""
