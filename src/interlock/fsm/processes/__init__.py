"""The processes around a stream, as tables.

    turns         the loop over the turns of a response
    background    the owner of a background response
    stored        a stored response
    conversation  a conversation
    lane          the requests of one `stream_id` on a WebSocket
    steering      the input with which a client steers a response, on a WebSocket
    connection    a WebSocket
    server        a server, from its start to its last connection
    worker        one of several processes of a server
    container     a container of the code interpreter
    async_call    a call of an async tool, and its late outputs

    upstream_connection    a connection of a gateway to its upstream

`interlock.serving` fires the edges and carries out their effects. `interlock verify` explores every table
(`interlock.fsm.proof.process_walks`).
"""
