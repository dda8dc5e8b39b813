"""Engines: where model output comes from, behind one protocol.

    engine     the protocol
    generation what an engine does for one response beside generating
    embedded/  a stand-in model that runs anywhere
    script     an engine that replays turns
    harmony    messages of gpt-oss and of its tools, for an engine that goes on from tokens
    prompt     what both read of a conversation

What they yield is raw model output: it takes the same path through parser and driver whoever wrote it.
"""
