"""The only place with IO: everything that reads requests, runs engines and tools, answers, stores, and starts from a shell.

A request goes through the folders in one direction, from the first to the last one that it needs:

    cli/         the command `interlock`
    vllm/        the plugin inside vLLM
    http/        routes, authentication, limits, the ways to answer, the server process
    runs/        one response while it is being made: its turns, its life in the background
    tools/       hosted tools, run on MCP servers
    recordings/  what an engine yielded, as a file: read, replayed, cut into other chunks
    engines/     where model output comes from
    sealing/     what clients carry and only a server can read
    store/       responses that have ended
    requests/    what the body of a request may say

`errors` and `identity` (ids that nobody can guess, and the clock) serve all of them.
"""
