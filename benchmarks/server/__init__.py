"""What a token costs the process that serves: one vLLM server with three routes for the same request."""
