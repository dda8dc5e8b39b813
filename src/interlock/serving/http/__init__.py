"""HTTP and WebSockets: the routes of the server and the vLLM plugin, and how they read requests and send responses.

app               the application: its routes and its middleware
answers           HTTP responses: JSON, errors, event streams, and the stream of a background response
dialect_routes    the routes of Messages and Chat Completions
codex_models      the catalogue of models that Codex reads
websocket         WebSocket mode: the lanes, limits, frames and steering of a connection
bounded_protocol  uvicorn's WebSocket protocol with limits
script_faults     breaks connections and streams as a script says
server            the server process, in the foreground or in a thread, and its HTTP protocol
workers           several server processes behind one port, and their supervisor
tables            the states of a server, and of a WebSocket, its lanes and the steering of their responses
"""
