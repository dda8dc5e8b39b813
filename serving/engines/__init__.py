"""Engines: where model output comes from, behind one protocol.

`engine.py` is the protocol; `embedded.py` a stand-in model that runs anywhere, and `script.py` one that replays turns. What
they yield is raw model output, which takes the same path through parser and driver whoever wrote it.
"""
