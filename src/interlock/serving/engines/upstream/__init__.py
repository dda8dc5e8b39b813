"""The gateway: an engine whose models are on other servers, behind any of the APIs in `apis`.

gateway             the models of all upstreams, and the generation of a response by one of them
apis                the table of the APIs
translator          an upstream, and what the translators of all APIs have in common
gateway_config      upstreams from options or a TOML file
model_list          the models that an upstream lists
survey              the models and faults of the upstreams when a gateway starts
upstream_client     calls of an upstream: event streams, timeouts, retries, errors
script_recorder     a gateway that records what upstreams answer, as a script
http_client         HTTP/1.1: connections, TLS, proxies, limits
connection_table    a connection to an upstream, as a table
completions         what the requests and chunks of Chat Completions and of vLLM's completions have in common
call_names          the ids of calls and the names of functions, there and back
chat_upstream       Chat Completions: requests and chunks
chat_messages       Chat Completions: conversations as messages
responses_upstream  Responses: requests and events
vllm_upstream       vLLM's completions: prompts and outputs as tokens
harmony_prompt      prompts of gpt-oss as tokens
"""
