"""What a family is: the texts of its markers by their roles, and how names and keys are written. Data, and no behaviour.

vLLM names two parsers for a model, one for its calls and one for its reasoning, and any pair of them may be asked for. So
there are two kinds of data, `Syntax` and `Reasoning`, and a `Family` is a pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from interlock.parsers.families.alphabet import Trigger
from interlock.parsers.families.envelope import Named

__all__ = ["CALLING", "Family", "Markers", "Reasoning", "Start", "Style", "Syntax"]

Style: TypeAlias = Literal["keys", "json", "envelope"]
"""How arguments are written: as keys and values, as JSON, or as a member of a JSON object that names the function too."""

Start: TypeAlias = Literal["thinking", "between"]
"""The states in which a turn may start."""

Markers: TypeAlias = Mapping[Trigger, tuple[str, ...]]
"""The texts of the markers of each role; of several that fit at the same place the longest counts."""

CALLING: Final = frozenset({Trigger.SECTION, Trigger.CALL, Trigger.INVOKE, Trigger.BARE})
"""The roles that begin a call."""

_NAME: Final = r"[\w.:/$-]"


@frozen(eq=False)
class Syntax:
    """How a family writes calls.

    Args:
        style: How arguments are written.
        markers: The markers of calls.
        name: What a whole name looks like between its markers: the group `name`, and `id` where the family writes one.
        growing: What it may look like before it is whole. What does not is no name.
        key: What a whole key looks like: the group `key`, and `string` where the markup says whether the value is one.
        lenient: Whether a value that neither the markup nor a schema gives a type is JSON if it can be.
        ids: What the ids of calls look like, where the family writes them.
        needs: The marker that vocabularies lack whose models write an older format.
    """

    style: Style
    markers: Markers
    name: re.Pattern[str] = re.compile(rf"""\s*["']?(?P<name>{_NAME}+)["']?\s*""")
    growing: re.Pattern[str] = re.compile(rf"""\s*["']?{_NAME}*["']?\s*""")
    key: re.Pattern[str] = re.compile(r"""\s*["']?(?P<key>[^"'<>\s](?:[^<>\n]*[^"'<>\s])?)["']?\s*""")
    lenient: bool = False
    ids: re.Pattern[str] | None = None
    needs: str = ""


@frozen(eq=False)
class Reasoning:
    """How a family writes reasoning.

    Args:
        begins: What begins it.
        ends: What ends it.
        implied: Whether a turn starts inside of it if the prompt says neither that it does nor that it does not.
        yields: Whether a call that begins inside of it ends it.
    """

    begins: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("\n</think>", "</think>")
    implied: bool = True
    yields: bool = True


@frozen(eq=False)
class Family:
    """A pair of syntaxes, either of which may be missing: then its markers are text.

    Args:
        name: For people.
        syntax: How calls are written.
        reasoning: How reasoning is written.
        markers: All markers of both.
    """

    name: str
    syntax: Syntax | None
    reasoning: Reasoning | None
    markers: Markers = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Collect the markers."""
        markers: dict[Trigger, tuple[str, ...]] = {}
        if self.reasoning is not None:
            markers = {Trigger.THINK: self.reasoning.begins, Trigger.UNTHINK: self.reasoning.ends}
        if self.syntax is not None:
            markers |= self.syntax.markers
        object.__setattr__(self, "markers", markers)

    @property
    def starts(self) -> Start:
        """The state in which a turn starts if the prompt says nothing of it."""
        return "thinking" if self.reasoning is not None and self.reasoning.implied else "between"

    @property
    def style(self) -> Style | None:
        """How arguments are written."""
        return None if self.syntax is None else self.syntax.style

    def grows(self, text: str) -> bool:
        """Return whether a text may become a name."""
        return self.syntax is not None and self.syntax.growing.fullmatch(text) is not None

    def read_name(self, text: str) -> Named | None:
        """Return the name that a text between the markers of a name gives; None if it is no name."""
        match = None if self.syntax is None else self.syntax.name.fullmatch(text)
        return None if match is None else Named(match["name"], call_id=match.groupdict().get("id") or "")

    def read_key(self, text: str) -> tuple[str, str | None] | None:
        """Return the key that a text gives, and whether its value is said to be a string; None if it is no key."""
        match = None if self.syntax is None else self.syntax.key.fullmatch(text)
        return None if match is None else (match["key"], match.groupdict().get("string"))

    def written_id(self, call_id: str) -> str:
        """Return the id of a call as the model wrote it: without the prefix of the API, if the rest is what the family writes.

        Args:
            call_id: As the API has it (rule R7).
        """
        bare_id = call_id.removeprefix("call_")
        ids = None if self.syntax is None else self.syntax.ids
        return bare_id if ids is not None and ids.fullmatch(bare_id) else call_id
