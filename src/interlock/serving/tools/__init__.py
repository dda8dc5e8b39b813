"""Hosted tools: calls that the server runs itself, on MCP servers.

tool_runner    the interface of tools, and two kinds that run nothing: no tools, and recorded ones
hosting        the tools of one response: lists, approved calls, and the calls of a turn
calling        the translation between calls of the model, calls of an MCP server, and items
declared       the MCP servers that a request declares, and their rules
filters        changes to the parser's deltas: approval requests and citations
address        the hosts and addresses that a request may make the server reach (SSRF guard)
mcp_session    a session with one server, in a task of its own
mcp_transport  the HTTP of a session: guarded requests, bounded responses
mcp_v1         the `mcp` package before its version 2
"""
