"""WebSocket mode: several requests, one after another or side by side, over one connection to `/v1/responses`.

    frames             what a client's frame says, and how an answer to it is written
    request_lane       one lane: its requests in their order
    socket_memory      what connections hold, such as the response that the next request of a lane may continue
    socket_connection  one connection: its lanes, its limits, and its end

It knows nothing of engines or of routes: the server that accepts the connection hands in how a request becomes a run.
"""
