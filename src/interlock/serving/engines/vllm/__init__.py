"""vLLM as an engine of the service, and the endpoint plugin that puts the service's routes in front of vLLM's.

Everything that touches vLLM is in this folder. vLLM keeps validation, rendering, sampling parameters, scheduling, LoRA, metrics
and authentication; the turn loop, the tools, the store and the answers are the service's.

    compat       all that is used of vLLM: its classes as protocols, the names that must be there, and the import of it
    vllm_engine  a turn as a request that vLLM renders, and what it generates
    readers      reading models other than gpt-oss, with our parsers or vLLM's

Nothing here imports vLLM before a server has loaded the plugin.
"""
