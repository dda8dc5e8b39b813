"""The embedded engine: a deterministic stand-in model that runs anywhere, so that clients can be written and tested.

engine      the engine
model       what the model says, made of the request's own words
choosing    which tools it calls
schema      JSON that fits a schema (with scalars and pattern), and judging by `jsonschema`
writing     the model's words as harmony tokens
"""

from interlock.serving.engines.embedded.engine import MODEL, EmbeddedEngine

__all__ = ["MODEL", "EmbeddedEngine"]
