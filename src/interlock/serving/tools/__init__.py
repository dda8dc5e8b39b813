"""Hosted tools: calls that the server runs itself, on MCP servers.

tool_runner    the interface of tools to the server, and tools that run nothing: none, and recorded ones
hosting        the tools of one response: lists, approved calls, the calls of a turn
calling        which tool of which server a call means, and how its result is shown
declared       the MCP servers that a request declares, and their rules
filters        changes to the parser's deltas: approval requests, and citations
address        which hosts and addresses a request may make the server reach
mcp_session    a session with one server, in a task of its own
mcp_transport  the HTTP under a session: guarded requests, bounded responses
mcp_v1         the `mcp` package before its version 2
"""
