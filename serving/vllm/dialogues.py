"""The messages that vLLM goes on from, kept once for each round instead of once for each token.

Each of vLLM's contexts keeps them in a form of its own; there is a dialogue for each form. They use what vLLM's classes have and
`openai_harmony`, and know nothing of events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Protocol, cast

from attrs import define, field

from interlock.parsers.vocabulary import vocabulary
from interlock.serving.vllm.shapes import Output

__all__ = ["HarmonyDialogue", "ParsedDialogue", "SilentDialogue"]

logger = logging.getLogger(__name__)


class Author(Protocol):
    """The constructors of `openai_harmony.Author`."""

    def new(self, role: object, name: str) -> object:
        """Return an author."""
        ...


class HarmonyMessage(Protocol):
    """`openai_harmony.Message`, the class and its instances."""

    recipient: str | None
    channel: str | None

    def from_author_and_content(self, author: object, content: str) -> HarmonyMessage:
        """Return a message."""
        ...

    def from_role_and_content(self, role: object, content: str) -> HarmonyMessage:
        """Return a message."""
        ...

    def with_recipient(self, recipient: str) -> HarmonyMessage:
        """Return the recipient."""
        ...

    def with_channel(self, channel: str) -> HarmonyMessage:
        """Return in which channel it is."""
        ...


class Encoding(Protocol):
    """What is used of `openai_harmony.HarmonyEncoding`."""

    def parse_messages_from_completion_tokens(self, tokens: Sequence[int], role: object) -> list[HarmonyMessage]:
        """Return the messages of a round; raises `HarmonyError` if they are malformed."""
        ...

    def decode(self, tokens: Sequence[int], errors: str = ...) -> str:
        """Return the text of tokens."""
        ...

    def is_special_token(self, token: int) -> bool:
        """Return whether a token is a control token."""
        ...


class Harmony(Protocol):
    """What is used of the module `openai_harmony`."""

    Author: Author
    Message: HarmonyMessage
    Role: Callable[[str], object]
    HarmonyError: type[Exception]


class Segment(Protocol):
    """A piece of what vLLM's own harmony parser gives."""

    completed_message: HarmonyMessage | None


class Chunked(Protocol):
    """What vLLM's own harmony parser gives of some tokens."""

    segments: Sequence[Segment]


class Recovering(Protocol):
    """vLLM's own harmony parser, which makes something of malformed rounds too."""

    def process_chunk(self, token_ids: Sequence[int]) -> Chunked:
        """Parse tokens."""
        ...

    def flush(self) -> Sequence[Segment]:
        """End the round."""
        ...


@define(eq=False)
class HarmonyDialogue:
    """The messages of a model that writes harmony.

    A round is parsed in one call of `openai_harmony`; only one that is malformed is given to vLLM's own parser, which goes token
    by token and makes something of it, or else is one message with all of its text.

    Args:
        messages: vLLM's list, which it renders the next round's prompt from, and stores.
        parser: vLLM's own.
    """

    _messages: list[HarmonyMessage]
    _parser: Recovering
    _harmony: Harmony = field(factory=lambda: cast("Harmony", import_module("openai_harmony")))
    _tokens: list[int] = field(factory=list[int], init=False)

    def take(self, output: Output) -> None:
        """Keep the tokens."""
        self._tokens.extend(output.outputs[0].token_ids)

    def end_round(self, last: Output) -> bool:
        """Parse the tokens of the round."""
        del last
        tokens, self._tokens = self._tokens, []
        said = self._parse(tokens)
        for message in said:
            message.recipient = _plain(message.recipient)
        self._messages.extend(said)
        return bool(said)

    def reply(self, text: str) -> Sequence[object]:
        """Return the message of the tool that was called last."""
        call, harmony = self._messages[-1], self._harmony
        author = harmony.Author.new(harmony.Role("tool"), call.recipient or "")
        said = harmony.Message.from_author_and_content(author, text).with_recipient("assistant")
        return [said if call.channel is None else said.with_channel(call.channel)]

    def _parse(self, tokens: Sequence[int]) -> Sequence[HarmonyMessage]:
        try:
            return _encoding().parse_messages_from_completion_tokens(tokens, self._harmony.Role("assistant"))
        except self._harmony.HarmonyError:
            logger.info("a round of malformed harmony is left to vLLM's parser, for the messages that vLLM goes on from")
        try:
            segments = [*self._parser.process_chunk(tokens).segments, *self._parser.flush()]
        except self._harmony.HarmonyError:  # up to 0.30 it recovers from less
            encoding = _encoding()
            text = encoding.decode([token for token in tokens if not encoding.is_special_token(token)], errors="replace")
            role = self._harmony.Role("assistant")
            return [self._harmony.Message.from_role_and_content(role, text).with_channel("final")]
        return [segment.completed_message for segment in segments if segment.completed_message is not None]


def _encoding() -> Encoding:
    """Return the vocabulary, which our parser has loaded."""
    return cast("Encoding", vocabulary().encoding)


@define(eq=False)
class ParsedDialogue:
    """The items of a model that vLLM parses with its tools; vLLM's own context takes a round as one whole output.

    Args:
        messages: vLLM's list of items.
        append_whole: vLLM's own way of taking an output, which expects all of a round.
    """

    _messages: list[object]
    _append_whole: Callable[[Output], None]
    _tokens: list[int] = field(factory=list[int], init=False)
    _texts: list[str] = field(factory=list[str], init=False)

    def take(self, output: Output) -> None:
        """Keep what is new."""
        new = output.outputs[0]
        self._tokens.extend(new.token_ids)
        self._texts.append(new.text)

    def end_round(self, last: Output) -> bool:
        """Have vLLM take the round as one output."""
        before = len(self._messages)
        whole, part = copy(last), copy(last.outputs[0])
        part.text, part.token_ids = "".join(self._texts), tuple(self._tokens)
        whole.outputs = [part]
        self._tokens, self._texts = [], []
        self._append_whole(whole)
        return len(self._messages) > before

    def reply(self, text: str) -> Sequence[object]:
        """Return the output of the function that was called last."""
        call_id = getattr(self._messages[-1], "call_id", "")
        said: Mapping[str, object] = {"type": "function_call_output", "call_id": call_id, "output": text}
        return [said]


@define(eq=False)
class SilentDialogue:
    """Keeps nothing itself: a response of one round, which vLLM does not go on from.

    Args:
        append: vLLM's own way of taking an output, for a request that wants to see what it keeps.
    """

    _append: Callable[[Output], None] | None = None

    def take(self, output: Output) -> None:
        """Have vLLM keep the output, or nothing."""
        if self._append is not None:
            self._append(output)

    def end_round(self, last: Output) -> bool:
        """Return no previous response."""
        del last
        return False

    def reply(self, text: str) -> Sequence[object]:
        """Return nothing."""
        del text
        return []


def _plain(recipient: str | None) -> str | None:
    """Drop what older releases of `openai_harmony` leave of a constraint in a recipient."""
    return recipient and (recipient.partition("<|constrain|>")[0].rstrip() or None)
