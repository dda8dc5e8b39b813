"""Responses in progress, from the request to the stored response.

service              resolves a request, admits its run, and reports its end
run                  makes one response: executes the turn loop, and compacts the conversation
turns_table          the loop over the turns of a response, as a table
active_runs          the responses in progress, and the limit on their number in all processes of a server
background_response  writes the events of a background response to a store, by a table
archive              the stored responses, the events of background responses, and the leases on conversations
sealing              encrypted content, which clients carry and only the server can read
"""
