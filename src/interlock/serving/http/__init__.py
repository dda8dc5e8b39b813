"""HTTP: the routes of the standalone server, and what any route of ours needs.

app            the routes
intake         what stands before a request's meaning: content type, size, key
decoding       compressed bodies
answers        the ways to answer: a stream, one piece, the stream of a response in the background
errors         errors as answers
stored         stored responses
conversations  conversations
compacted      compaction by itself
listing        pages of the input items of a stored response
websocket/     WebSocket mode
protocol       the WebSocket protocol of uvicorn, bounded
server         the server process, in the foreground or in a thread
vllm           the plugin: the routes in front of vLLM's
"""
