"""What runs beside a stream, as tables: the loop over turns, and what is stored, shared or connected.

    turns         the turns of one response
    background    the owner of a response in the background
    stored        a stored response
    conversation  a conversation
    lane          the requests of one `stream_id` on a WebSocket
    connection    a WebSocket

A table says what is done when; `interlock.serving` fires its edges and carries the effects out. `interlock verify` walks all
of them (`interlock.fsm.proof.process_walks`).
"""
