"""The embedded engine: a deterministic stand-in model that runs anywhere, for writing and testing clients."""

from interlock.serving.engines.embedded.embedded_engine import MODEL, EmbeddedEngine

__all__ = ["MODEL", "EmbeddedEngine"]
