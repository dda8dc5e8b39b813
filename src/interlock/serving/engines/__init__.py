"""Engines: sources of raw model output behind one protocol. The same parser and driver read all of them.

engine          the protocol
generation      an engine's part in one response besides generating
embedded/       a stand-in model that runs anywhere
vllm/           vLLM
script          an engine that replays turns
recordings      engine outputs as a file: read, written, rechunked and replayed
prompt          a conversation as a stand-in for a model reads it
harmony_tokens  text and messages as tokens of gpt-oss
"""
