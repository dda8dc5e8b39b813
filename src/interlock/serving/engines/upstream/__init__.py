"""The gateway: an engine whose models are on other servers, behind any of the APIs in `translator`.

gateway             the models of all upstreams, and the generation of a response by one of them
script_recorder     a gateway that records what upstreams answer, as a script
upstreams           upstreams from options or a TOML file, and the models that they list
translator          the table of the APIs, and what their translators have in common
chat_upstream       Chat Completions: requests, conversations and chunks
responses_upstream  Responses: requests and events
vllm_upstream       vLLM's completions: prompts and outputs as tokens
upstream_client     calls of an upstream: event streams, timeouts, retries, errors
http_client         HTTP/1.1: connections, TLS, proxies, limits
connection_table    a connection to an upstream, as a table
"""
