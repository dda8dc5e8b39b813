"""HTTP and WebSockets: the routes of the server and the vLLM plugin, and how they read requests and send responses.

app               the routes, the middleware, and the application
request_body      reads and decompresses the bodies of requests
answers           HTTP responses: JSON, errors, event streams, and the stream of a background response
stored_routes     the routes of stored responses and conversations
websocket         WebSocket mode: the lanes, limits and frames of a connection
socket_memory     the memory of WebSocket connections, with its limits
bounded_protocol  uvicorn's WebSocket protocol with limits
server            the server process, in the foreground or in a thread
plugin            the vLLM plugin, which puts the routes in front of vLLM's
"""
