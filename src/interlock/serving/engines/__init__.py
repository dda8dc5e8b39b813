"""Engines: sources of raw model output behind one base class, which the same parsers and driver read.

engine           the base classes of engines and of what they do for one response
generation       prompts that fit, and responses without output
shortcut         the two ways of a delta from an upstream to the client, and the short one
embedded         a stand-in model that runs anywhere
example_values   example values for JSON schemas, which the stand-in model writes
vllm/            vLLM
upstream/        the gateway to other servers
script           the format of scripts, and which of their rules answers
scripted_engine  an engine that follows a script
recordings       engine outputs as a file: read, written, rechunked and replayed
prompt           what the engines without a model read of a conversation, and an estimate of its tokens
token_estimate   an estimate of the tokens of a request
harmony_tokens   text and messages as tokens of gpt-oss
"""
