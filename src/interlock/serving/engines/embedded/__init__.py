"""The embedded engine: a deterministic stand-in model that runs anywhere, so that clients can be written and tested.

engine   the engine: chunks, rates, budgets
model    the words of the model, made of those of the request
calls    the tools that it calls
schema   values for JSON schemas
writing  its words as tokens
"""

from interlock.serving.engines.embedded.engine import MODEL, EmbeddedEngine

__all__ = ["MODEL", "EmbeddedEngine"]
