"""The only place with IO: everything that reads requests, runs engines and tools, answers, stores, and starts from a shell.

A request goes through the folders in one direction, from the first to the last one that it needs:

    cli/        the command `interlock`
    http/       routes, WebSocket, authentication, limits, the server process, the plugin's mount in vLLM
    responses/  one response while it is being made: its turns, its life in the background, sealing
    view/       the viewer
    tools/      hosted tools, run on MCP servers
    engines/    where model output comes from: embedded, scripts and recordings, vLLM
    store/      responses that have ended
    requests/   what the body of a request may say, and the errors that answer it
"""
