"""Engines: sources of raw model output behind one base class, which the same parsers and driver read.

engine          the base classes of engines and of what they do for one response, and prompts that fit
prompt          what engines read of a conversation, and an estimate of its tokens
shortcut        the two ways of a delta from an upstream to the client, and the short one
embedded        a stand-in model that runs anywhere
script          scripts: their format, and an engine that follows one
script_errors   the place and the reason of an error in a script
recordings      engine outputs as a file: read, written, rechunked and replayed
pages           the pages in the text of a web search
chat_messages   a conversation as messages of Chat Completions
harmony_prompt  the prompts of gpt-oss
harmony_tokens  text and messages as tokens of gpt-oss
vllm/           vLLM
upstream/       the gateway to other servers
"""
