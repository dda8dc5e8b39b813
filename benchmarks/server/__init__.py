"""The cost of a token in the server's process: one vLLM server with three routes for the same request."""
