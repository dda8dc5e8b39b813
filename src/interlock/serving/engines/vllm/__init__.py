"""vLLM as an engine of the service: the only folder that imports vLLM, and only in a server that loads the plugin.

`compat` has the used parts of vLLM, `vllm_engine` generates turns, and `readers` parses models other than gpt-oss.
"""
