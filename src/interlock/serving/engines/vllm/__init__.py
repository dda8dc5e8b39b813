"""vLLM as an engine of the service: the only folder that imports vLLM, and only in a server that loads the plugin.

plugin       the plugin that vLLM loads, which mounts the server's routes in front of vLLM's
compat       the parts of vLLM that the plugin uses
vllm_engine  generates turns
readers      parse the output of models other than gpt-oss
"""
