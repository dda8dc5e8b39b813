"""vLLM as an engine of the service. Only this folder touches vLLM, and it imports vLLM only in a server that loads the plugin.

vLLM keeps validation, rendering, sampling parameters, scheduling, LoRA, metrics and authentication; the turn loop, the tools, the
store and the answers are the service's. `compat` has what is used of vLLM, `vllm_engine` generates turns, and `readers` parses
the models other than gpt-oss.
"""
