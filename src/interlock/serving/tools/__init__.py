"""Hosted tools: calls that the server runs itself, on MCP servers.

tool_runner  the interface of tools, and two kinds that run nothing: no tools, and recorded ones
hosting      the tools of one response: declared servers, their lists and calls, approval requests and citations
address      the hosts and addresses that a request may make the server reach (SSRF guard)
mcp_session  a session with one server, in a task of its own; its guarded requests and bounded responses
mcp_v1       the `mcp` package before its version 2
"""
