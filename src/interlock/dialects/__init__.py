"""The APIs in front, and their transducers: tables that read the events of a response and emit the stream of another API.

The driver proves that the events of a response are legal. A transducer is a table whose triggers are what these events say, and
whose effects make the events of the other API, so that a stream in that API is legal because the table is.

    transducer  reads events as triggers, fires them, and encodes what the effects make
    messages    Anthropic's Messages
    chat        OpenAI's Chat Completions

docs/design/adding-an-api.md adds an API.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

ApiName: TypeAlias = Literal["responses", "messages", "chat"]
"""An API in front. A module of `interlock.dialects` and one of `interlock.judges` have the name of each one but `responses`."""

APIS: Final[tuple[ApiName, ...]] = get_args(ApiName)
DIALECT_APIS: Final = APIS[1:]
"""The APIs whose streams a transducer writes."""
