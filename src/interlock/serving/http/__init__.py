"""HTTP and WebSockets: the routes of the server and the vLLM plugin, and how they read requests and send responses.

app               the application: its routes and its middleware
answers           HTTP responses: JSON, errors, event streams, and the stream of a background response
dialect_routes    the routes of Messages and Chat Completions
websocket         WebSocket mode: the lanes, limits, frames and steering of a connection
bounded_protocol  uvicorn's WebSocket protocol with limits
script_faults     breaks connections and streams as a script says, and keeps its tests apart
server            the server: in the foreground, in a thread, or in several processes; and its HTTP protocol
tables            the states of a server, and of a WebSocket, its lanes and the steering of their responses
"""
