"""vLLM as an engine of the service: the only folder that imports vLLM, and only in a server that loads the plugin.

`compat` has the parts of vLLM that the plugin uses, `vllm_engine` generates turns, and `readers` parses the output of models
other than gpt-oss.
"""
