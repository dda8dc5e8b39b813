"""A family is data: the texts of its markers by role, and the patterns of names and keys.

In vLLM, a model has two parsers in any combination, one for calls and one for reasoning. So a `Family` is a pair of a
`Syntax` and a `ReasoningSyntax`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from html import unescape
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.literals import PYTHON, Notation
from interlock.parsers.families.patterns import REST, SPACE, matcher

MAX_LENGTH: Final = 4096
"""The maximum number of characters that wait until the name in an envelope is complete."""

_SPACE: Final = r"\s*"


def _beginning(parts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches these parts in order, or a prefix of them; its group `whole` is set if all matched."""
    pattern = "(?P<whole>)"
    for part in reversed(list(parts)):
        pattern = rf"{part}{pattern}" if part.endswith(("*", "*)")) else rf"(?:\Z|{part}{pattern})"
    return re.compile(pattern)


def _member(key: str) -> list[str]:
    """Return the patterns of a member, up to its value."""
    return [_SPACE, *f'"{key}"', _SPACE, ":", _SPACE]


def _string(pattern: str) -> list[str]:
    """Return the patterns of a string."""
    return ['"', pattern, '"']


_NAMES: Final = [[*_member(key), *_string(r"(?P<name>[\w.:/$-]*)")] for key in ("name", "tool_name")]
_FIRST: Final = [[], *([*_member(key), *_string(r'[^"\\]*'), _SPACE, ","] for key in ("id", "type", "tool_call_id"))]
_OPENINGS: Final = [_beginning([_SPACE, r"\{", *first, *name]) for first in _FIRST for name in _NAMES]
_LATE_NAMES: Final = [_beginning([_SPACE, ",", *name]) for name in _NAMES]
_ARGUMENTS: Final = [_beginning([_SPACE, r"\{", *_member(key)]) for key in ("arguments", "parameters")]
_MEMBERS: Final = [_beginning([_SPACE, ",", *_member(key)]) for key in ("arguments", "parameters")]
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


@frozen
class NameMatch:
    """A function name (empty while incomplete), where it ends, the arguments that were read with it, and the call id."""

    name: str = ""
    end: int = 0
    arguments: str = ""
    call_id: str = ""


def read_envelope(text: str) -> NameMatch | None:
    """Read an envelope up to the end of its name; None if the text is not an envelope or is too long.

    It is a JSON object with the members `name` (or `tool_name`) and `arguments` (or `parameters`), in either order. If the name
    comes before the arguments, one `id`, `type` or `tool_call_id` may precede it.
    """
    match = _match(_OPENINGS, text, 0)
    if match is not None and match["whole"] is not None:
        return NameMatch(match["name"], match.end()) if match["name"] else None
    if len(text) > MAX_LENGTH:
        return None
    arguments = _match(_ARGUMENTS, text, 0)
    if arguments is not None and arguments["whole"] is not None:
        return _name_after_arguments(text, arguments.end())
    return NameMatch() if match is not None or arguments is not None else None


def _match(patterns: Iterable[re.Pattern[str]], text: str, start: int) -> re.Match[str] | None:
    """Return the first complete match, or else one that more text may complete."""
    partial = None
    for pattern in patterns:
        match = pattern.match(text, start)
        if match is not None and match["whole"] is not None:
            return match
        if match is not None and match.end() == len(text):
            partial = match
    return partial


def _name_after_arguments(text: str, start: int) -> NameMatch | None:
    """Read the name after the arguments, which begin at `start`."""
    end = _end_of_object(text, start)
    if end is None:
        return NameMatch() if text.startswith("{", start) or start == len(text) else None
    match = _match(_LATE_NAMES, text, end)
    if match is not None and match["whole"] is not None:
        return NameMatch(match["name"], match.end(), text[start:end]) if match["name"] else None
    return None if match is None else NameMatch()


def _end_of_object(text: str, start: int) -> int | None:
    """Return where a JSON object ends; None if it is incomplete or not an object."""
    if not text.startswith("{", start):
        return None
    depth = 0
    for token in _JSON.finditer(text, start):
        if not token.group().startswith('"'):
            depth += 1 if token.group() in "{[" else -1
        if depth == 0:
            return token.end()
    return None


def after_name(text: str) -> int | None:
    """Return where the arguments begin in the text after a name; -1 if that is undecided, None if there are none."""
    member = _match(_MEMBERS, text, 0)
    return None if member is None else -1 if member["whole"] is None else member.end()


Style: TypeAlias = Literal["keys", "json", "envelope", "literal"]
"""The style of arguments: keys and values, JSON, a member of a JSON object that also has the function's name, or a literal."""

TurnStart: TypeAlias = Literal["thinking", "between"]
"""The states in which a turn may start."""

Markers: TypeAlias = Mapping[Trigger, tuple[str, ...]]
"""The texts of the markers of each role, which may contain `patterns.ANY`; the longest match wins.

A marker that ends a name or a value because something follows, such as a key without another marker before it, has both roles.
"""

CALLING: Final = frozenset(
    {
        *(Trigger.SECTION, Trigger.CALL, Trigger.INVOKE, Trigger.OBJECT, Trigger.BARE),
        *(Trigger.LONE, Trigger.REHEARSED, Trigger.ORPHAN),
    }
)
"""The roles of markers that begin a call or stand outside one; without tools, such markers are text."""

_NAME: Final = r"[\w.:/$-]"
_PARTIAL_KEY: Final = re.compile(r"""\s*(?P<quote>["'])(?:(?!(?P=quote))[^\n])*(?:(?P=quote)[^<>\n]*)?|\s*[^<>\n]*""")
_QUOTED: Final = re.compile(r"""\s*(?P<quote>["'])(?P<key>(?:(?!(?P=quote))[^\n])+)(?P=quote)\s*""")
_OPEN_QUOTE: Final = re.compile(r"""\s*(?P<quote>["'])(?:(?!(?P=quote))[^\n])*""")


@frozen(eq=False)
class Syntax:
    """How a family writes calls.

    Args:
        style: The style of arguments.
        markers: The markers of calls.
        name: Matches a complete name: the group `name`, and `id` where the family writes one. In a family with literals, also the
            group `start`, the beginning of the literal, and then the sign of the role `literal`.
        declared_names: Match further names, which count only if the request declares the tool.
        partial_name: Matches any beginning of a name.
        key: Matches a complete key: the group `key`, and `string` where the markup has a type; `true` or `string` means a string.
        lenient: Whether a value without a type is read as JSON if it is valid JSON; otherwise it is a string.
        own_lines: Whether the markers after a value are on lines of their own, so that inside of a line they are text of it.
        omits_ends: Whether models of the family omit the markers after the last value of a turn.
        escaped_keys: Whether keys are escaped as the attributes of XML are.
        ids: Matches the ids of calls, where the family writes them.
        required_marker: A marker that must be in the vocabulary; models with an older format lack it.
        notation: The notation of literals.
    """

    style: Style
    markers: Markers
    name: re.Pattern[str] = re.compile(rf"""\s*["']?(?P<name>{_NAME}+)["']?\s*""")
    declared_names: tuple[re.Pattern[str], ...] = ()
    partial_name: re.Pattern[str] = re.compile(rf"""\s*["']?{_NAME}*["']?\s*""")
    key: re.Pattern[str] = re.compile(r"""\s*["']?(?P<key>[^"'<>\s](?:[^<>\n]*[^"'<>\s])?)["']?\s*""")
    lenient: bool = False
    own_lines: bool = True
    omits_ends: bool = False
    escaped_keys: bool = False
    ids: re.Pattern[str] | None = None
    required_marker: str = ""
    notation: Notation = PYTHON


@frozen(eq=False)
class ReasoningSyntax:
    """How a family writes reasoning.

    Args:
        begins: The markers before it.
        ends: The markers after it.
        implied: Whether a turn starts in reasoning by default, if the prompt does not decide.
        answers: The markers before and after messages, in a family that marks them.
    """

    begins: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("\n</think>", "</think>")
    implied: bool = True
    answers: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


_TAG: Final = re.compile(r"(?P<stem>\n?</(?:[^>]*[:|])?\w{3})\w*>")
"""An end marker with the beginning that its misspellings share."""


def _misspelled(ends: Sequence[str]) -> Iterator[str]:
    """Yield the misspellings of the end markers of values."""
    for stem in dict.fromkeys(tag["stem"] for tag in map(_TAG.fullmatch, ends) if tag):
        yield from (f"{stem}{REST}>", f"{stem}{REST}\n")


@frozen(eq=False)
class Family:
    """A syntax and a reasoning format; without one of them, calls or reasoning stay in the text. The name is for display."""

    name: str
    syntax: Syntax | None
    reasoning: ReasoningSyntax | None
    markers: Markers = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Collect the markers."""
        markers: dict[Trigger, tuple[str, ...]] = {}
        if self.reasoning is not None:
            answers = zip((Trigger.ANSWER, Trigger.UNANSWER), self.reasoning.answers, strict=True)
            markers = {Trigger.THINK: self.reasoning.begins, Trigger.UNTHINK: self.reasoning.ends}
            markers |= {role: texts for role, texts in answers if texts}
        if self.syntax is not None:
            markers |= self.syntax.markers
            if Trigger.UNVALUE in markers:
                others = {text for role, texts in markers.items() if role is not Trigger.UNVALUE for text in texts}
                ends = [text for text in markers[Trigger.UNVALUE] if text not in others]
                if Trigger.MISSPELLED not in markers and (misspelled := tuple(_misspelled(ends))):
                    markers[Trigger.MISSPELLED] = misspelled
        object.__setattr__(self, "markers", markers)

    @property
    def starts(self) -> TurnStart:
        """The state in which a turn starts if the prompt does not decide that."""
        return "thinking" if self.reasoning is not None and self.reasoning.implied else "between"

    @property
    def style(self) -> Style | None:
        """The style of arguments; None without calls."""
        return None if self.syntax is None else self.syntax.style

    @property
    def implicit_end(self) -> Trigger | None:
        """The trigger that also ends the call in a family without end markers of calls; None in other families."""
        if Trigger.UNCALL in self.markers:
            return None
        return Trigger.SHUT if Trigger.SHUT in self.markers else Trigger.WHOLE

    @property
    def is_name_marked(self) -> bool:
        """Whether a marker of its own ends a name, so that text may follow it; otherwise a key or the end of the call does."""
        after = {text for role in (Trigger.KEY, Trigger.UNCALL) for text in self.markers.get(role, ())}
        return not after.issuperset(self.markers.get(Trigger.KEYS, ()))

    @property
    def omits_ends(self) -> bool:
        """Whether a turn that stops after a value ends its call."""
        return self.syntax is not None and self.syntax.omits_ends

    @property
    def notation(self) -> Notation:
        """The notation of literals."""
        return PYTHON if self.syntax is None else self.syntax.notation

    @property
    def signs(self) -> frozenset[str]:
        """The signs that structure a literal; inside it, they are not markers."""
        return self.notation.signs if self.style == "literal" else frozenset()

    def has_only_signs(self, text: str) -> bool:
        """Return whether a marker consists of signs that structure a literal."""
        return text in self.signs or all(letter in self.signs or letter == SPACE for letter in text)

    def may_be_name(self, text: str) -> bool:
        """Return whether a text is the beginning of a name."""
        return self.syntax is not None and self.syntax.partial_name.fullmatch(text) is not None

    def read_name(self, text: str, declared: Container[str] = ()) -> NameMatch | None:
        """Return the name in the text between its markers; None if invalid. `declared` has the names of the request's tools."""
        if self.syntax is None:
            return None
        match = self.syntax.name.fullmatch(text)
        if match is None or match["name"] not in declared:
            others = (pattern.fullmatch(text) for pattern in self.syntax.declared_names)
            match = next((other for other in others if other is not None and other["name"] in declared), match)
        if match is None:
            return None
        groups = match.groupdict()
        return NameMatch(match["name"], arguments=groups.get("start") or "", call_id=groups.get("id") or "")

    def read_key(self, text: str) -> tuple[str, str | None] | None:
        """Return the key in a text, and the type of its value in the markup; None if invalid."""
        if quoted := _QUOTED.fullmatch(text):
            return quoted["key"], None
        match = None if self.syntax is None else self.syntax.key.fullmatch(text)
        if match is None or match["key"] is None:
            return None
        mark = match.groupdict().get("string")
        escaped = self.syntax is not None and self.syntax.escaped_keys
        return unescape(match["key"]) if escaped else match["key"], mark and mark.lower()

    def may_be_key(self, text: str) -> bool:
        """Return whether a text is the beginning of a key; one that a marker ends or that is quoted may have any character."""
        return "\n" not in text if Trigger.UNKEY in self.markers else _PARTIAL_KEY.fullmatch(text) is not None

    def is_in_quotes(self, text: str) -> bool:
        """Return whether a key has begun with a quote, and not ended with one."""
        return _OPEN_QUOTE.fullmatch(text) is not None

    def written_id(self, call_id: str) -> str:
        """Return a call id of the API as the model wrote it: without `call_`, if the rest is an id of this family."""
        bare_id = call_id.removeprefix("call_")
        ids = None if self.syntax is None else self.syntax.ids
        return bare_id if ids is not None and ids.fullmatch(bare_id) else call_id

    def with_written_id(self, item: Mapping[str, object]) -> Mapping[str, object]:
        """Return a call or its output with the id that the model wrote; for clients, it has the prefix `call_` (rule R7)."""
        call_id = item.get("call_id")
        return {**item, "call_id": self.written_id(call_id)} if isinstance(call_id, str) else item

    def special_markers(self, vocabulary: Mapping[str, int]) -> Mapping[int, str]:
        """Return the special tokens of a model that are markers, by id; the vocabulary has the ids of all by their texts."""
        is_marker = matcher(tuple({text for texts in self.markers.values() for text in texts}))
        return {token: text for text, token in vocabulary.items() if is_marker(text)}

    def start_after(self, markers: Iterable[str]) -> TurnStart | None:
        """Return where a turn starts after a prompt that ends with these markers; None if they do not decide that."""
        if self.reasoning is None:
            return "between"
        begins, ends = matcher(self.reasoning.begins), matcher(self.reasoning.ends)
        for marker in reversed([*markers]):
            if begins(marker):
                return "thinking"
            if ends(marker):
                return "between"
        return None

    def count_reasoning(
        self, tokens: Iterable[int], special: Mapping[int, str], start: TurnStart | None, controls: Container[int] = ()
    ) -> int:
        """Count the tokens between reasoning markers; return 0 if the markers are not tokens, so that the parser estimates.

        Args:
            tokens: The output of a turn.
            special: The markers that are special tokens, by token id.
            start: Where the turn starts, if the prompt decides that.
            controls: The tokens that end a turn.
        """
        reasoning = self.reasoning
        if reasoning is None or not any(map(matcher(reasoning.ends), special.values())):
            return 0
        begins = {token for token, text in special.items() if matcher(reasoning.begins)(text)}
        count, thinks = 0, (start or self.starts) == "thinking"
        for token in tokens:
            if token in begins:
                thinks = True
            elif token in controls or token in special:
                thinks = False
            else:
                count += thinks
        return count
