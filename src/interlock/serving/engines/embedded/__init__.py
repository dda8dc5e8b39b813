"""The embedded engine: a deterministic stand-in model that runs anywhere, so that clients can be written and tested.

embedded_engine  the engine: chunks, rates, budgets
model            the words of the model, made of those of the request
tool_calls       the tools that it calls
example_values   values for JSON schemas
spelling         its words as tokens
"""

from interlock.serving.engines.embedded.embedded_engine import MODEL, EmbeddedEngine

__all__ = ["MODEL", "EmbeddedEngine"]
