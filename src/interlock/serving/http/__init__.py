"""HTTP: the routes of the standalone server, and what any route of ours needs.

app      the routes
intake   what stands before a request's meaning: content type, size, key
answers  the ways to answer: a stream, one piece, the stream of a response in the background
listing  pages of the input items of a stored response
server   the server process, in the foreground or in a thread
"""
