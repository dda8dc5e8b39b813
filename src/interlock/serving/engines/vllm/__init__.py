"""vLLM as an engine of the service: the only folder that imports vLLM, and only in a server that loads the plugin.

`compat` has what is used of vLLM, `vllm_engine` generates turns, and `readers` parses the models other than gpt-oss.
"""
