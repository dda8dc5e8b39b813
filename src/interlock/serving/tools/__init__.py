"""Hosted tools, which the server itself runs or calls on MCP servers.

tool_runner       the interfaces of tools, and two implementations that run nothing: no tools, and recorded results
hosting           the tools of one response: declared servers, their lists and calls, approval requests and citations
citations         the citations of tool results in the text of an answer
address           the hosts and addresses that a request may make the server reach (SSRF guard)
mcp_session       a session with one server, in its own task, with guarded requests and bounded responses
code_interpreter  the code interpreter that the server itself runs, in processes
container_table   a container of the code interpreter, as a table
web_search        the web search that the server itself runs: search APIs, and the pages of a response
page_reader       a program that reads the text of one web page
"""
