"""HTTP: the routes of the standalone server, and what any route of ours needs.

app                  the routes
intake               what stands before a request's meaning: content type, size, key
decoding             compressed bodies
answers              the ways to answer: a stream, one piece, the stream of a response in the background
error_responses      errors as answers
response_routes      stored responses
conversation_routes  conversations
compact_route        compaction by itself
listing              pages of the input items of a stored response
websocket/           WebSocket mode
bounded_protocol     the WebSocket protocol of uvicorn, bounded
server               the server process, in the foreground or in a thread
plugin               the plugin: the routes in front of vLLM's
"""
