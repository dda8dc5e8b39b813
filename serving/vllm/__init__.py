"""Inside vLLM: the endpoint plugin that makes Interlock the stream of `POST /v1/responses`.

Everything that touches vLLM is in this folder, and what is taken of vLLM is named in two places: `shapes` says what is used of
its objects, `seams` which of its names must be there. vLLM keeps validation, rendering, sampling parameters, scheduling, LoRA,
the tool server, metrics and authentication; the plugin takes what comes out of the engine and answers.

    seams      what must be there of an installed vLLM, and the import of it
    plugin     the plugin itself: the routes in front of vLLM's, and the hooks on the instance that serves responses
    routes     what is asked over HTTP
    held       the routes of responses that are held, which vLLM does not have
    sockets    WebSocket mode
    fitting    `truncation: auto`
    begun      what vLLM has made of a request when it begins to generate
    reading    from an engine's output to deltas
    pairing    which text belongs to which token
    rounds     the hooks in vLLM's loop over rounds of generation: they report when a tool starts and ends
    admission  whether the engine takes a request, before anything is answered
    run        one response while it is being made
    rendered   one response that is rendered and not generated
    middleware what vLLM's own middleware expects of an answer that takes long, and how compressed bodies come in
    sessions   the sessions with tool servers that one response has

Nothing here imports vLLM before a server has loaded the plugin.
"""
