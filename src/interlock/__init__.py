"""Interlock: a finite-state-machine streaming engine for the Responses API.

The root package holds its version and nothing else. `interlock.events` is the vocabulary, `interlock.fsm` the lifecycles
and the driver, `interlock.parsers` turns what a model wrote into deltas, and `interlock.serving` is the only place with IO.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
