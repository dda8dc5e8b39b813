"""WebSocket mode: several requests over one connection to `/v1/responses`, one after another or concurrently.

frames             parses client frames, and writes those of the server
socket_connection  one connection: its lanes, its limits, and its end
socket_memory      the responses that lanes may continue from, within limits of memory
"""
