"""Every object of the API as one type: what a stream, a request and a WebSocket say.

    parts     content parts, annotations, log probabilities, and the three ways in which a field may be left out
    tools     tools, tool choices and formats
    items     the items of responses and of requests
    response  the response, its usage and errors, and the request
    stream    the events of a stream, and the messages of a WebSocket

Names and defaults are the API's. A field without a way to be left out is in every response; one with a default may be left out
of a request.
"""
