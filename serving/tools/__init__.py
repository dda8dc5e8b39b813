"""Hosted tools: calls that the server runs itself, on MCP servers.

    configuration.py  what the operator set, and the beginning of each response's tools
    hosted.py         the names of the hosted tools
    hosting.py        the tools of one response: lists, approved calls, the calls of a turn
    calling.py        which tool of which server a call means, and what its result becomes
    declared.py       the MCP servers that a request declares, and their rules
    approval.py       calls that are asked for instead of made
    citation.py       marks in the model's text that name a page
    session.py        a session with one server, in a task of its own
    first_mcp.py      the `mcp` package before its version 2
    transport.py      the HTTP under a session: where it may go, how much it may bring
    reach.py          hosts and addresses that may be reached

What each of them is for the server is said in `interlock.serving.tools.protocol`.
"""
