"""Engines: where model output comes from, behind one protocol.

    engine            the protocol
    generation        what an engine does for one response beside generating
    embedded/         a stand-in model that runs anywhere
    vllm/             vLLM
    script            an engine that replays turns
    recordings        what an engine yielded, as a file: read, replayed, cut into other chunks
    harmony_messages  messages of gpt-oss and of its tools, for an engine that goes on from tokens
    prompt            what engines read of a conversation
    harmony_encoding  text as tokens of harmony

What they yield is raw model output: it takes the same path through parser and driver whoever wrote it.
"""
