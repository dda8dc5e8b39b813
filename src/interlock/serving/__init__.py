"""The server and the commands: the only place with IO.

A folder imports only from folders below it in this list:

    cli/          the command `interlock`
    http/         routes, WebSocket, authentication, limits, the server process, the plugin's mount in vLLM
    responses/    one response while it is being made: its turns, its run in the background, sealing
    view/         the viewer
    tools/        hosted tools, run on MCP servers
    engines/      the sources of model output: embedded engines, scripts and recordings, vLLM
    store/        responses that have ended
    requests/     what the body of a request may say, and the errors that answer it
    build         composes a server from its settings and its engine
    settings      the settings, and how they are read from options, the environment and a file
    metrics       the metrics for Prometheus
    traces        the spans for OpenTelemetry
"""
