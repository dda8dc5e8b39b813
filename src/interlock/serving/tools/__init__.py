"""Hosted tools, which the server itself runs or calls on MCP servers.

hosting           the interfaces of tools, and the tools of one response: their lists, calls, approval requests and citations
address           the hosts and addresses that a request may make the server reach (SSRF guard)
mcp_session       a session with one server, in its own task, with guarded requests and bounded responses
code_interpreter  the code interpreter that the server itself runs, in processes
web_search        the web search that the server itself runs: search APIs, and the pages of a response
page_reader       a program that reads the text of one web page
"""
