"""Transducers: tables that read the events of a response and emit the stream of another API.

The driver proves that the events of a response are legal. A transducer is a table whose triggers are what these events say, and
whose effects make the events of the other API, so that a stream in that API is legal because the table is.

    transducer  reads events as triggers, fires them, and encodes what the effects make
    messages    Anthropic's Messages
    chat        OpenAI's Chat Completions
"""

from __future__ import annotations

from interlock.dialects.chat import CHAT, ChatTransducer
from interlock.dialects.messages import MESSAGES, MessagesTransducer
from interlock.dialects.transducer import EntryWriter, Transducer

__all__ = ["CHAT", "MESSAGES", "ChatTransducer", "EntryWriter", "MessagesTransducer", "Transducer"]
