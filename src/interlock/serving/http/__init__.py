"""HTTP and WebSockets: the routes of the server and the vLLM plugin, and how they read requests and send responses.

app               the routes, the middleware, and the application
request_ids       the id of each request, in the log and in the answer, and its trace
request_body      reads and decompresses the bodies of requests
answers           HTTP responses: JSON, errors, event streams, and the stream of a background response
unserved          the errors for routes that are not served
stored_routes     the routes of stored responses and conversations
dialect_routes    the routes of Messages and Chat Completions
codex_models      the catalogue of models that Codex reads
websocket         WebSocket mode: the lanes, limits and frames of a connection
connection_table  a WebSocket, as a table
lane_table        the requests of one `stream_id` on a WebSocket, as a table
steering          the input with which a client steers a response
steering_table    the input with which a client steers a response, as a table
socket_memory     the memory of WebSocket connections, with its limits
bounded_protocol  uvicorn's WebSocket protocol with limits
direct_protocol   uvicorn's HTTP protocol, which gives answers the socket of their client
script_faults     breaks connections and streams as a script says
server            the server process, in the foreground or in a thread
server_table      a server, from its start to its last connection, as a table
workers           several server processes behind one port, and their supervisor
"""
