"""The losses of vLLM's and Interlock's parsers on the same inputs; writes docs/library/families.md.

    python benchmarks/losses.py

Each input is a turn in the format of a family, with numbered words in it, given token by token and three tokens at a time. What
is written between `<!-- measured: vllm -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from attrs import frozen
from speed import their_parsers
from speed.outputs import REQUEST, Stream

from interlock.fsm.deltas import Open, Usage
from interlock.parsers import Chunk, FamilyParser
from interlock.parsers.families import DEFAULT_REASONING, ParserSettings, family
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.patterns import wild
from interlock.parsers.families.reference_encoders import WrittenItem, encode

PAGE: Final = Path(__file__).parents[1] / "docs" / "library" / "families.md"
SECTION: Final = re.compile(r"(<!-- measured: vllm -->\n).*?(<!-- end -->)", re.DOTALL)
WORD: Final = re.compile(r"w\d+x")
TOKENS: Final = (1, 3)
LITERAL_ENDS: Final = ('"}', "'", '<|"|>', "<escape>", "]<]minimax[>[</city>")
"""The ends of values that are JSON or a literal."""

UNREAD: Final = ("mistral", "olmo3", "hunyuan_a13b")
"""Families whose reasoning vLLM reads only with the model's own tokenizer, or only in deltas of one id."""

Read = Callable[[Stream, Sequence[str]], tuple[str, list[str]]]
"""Reads a turn, delta by delta: all text and names, and the arguments of each call."""


@frozen
class Turn:
    """The output of a model.

    Args:
        text: All of it.
        calls: How many calls it made.
        valid: Whether their arguments are JSON.
        thinks: Whether it begins with reasoning.
    """

    text: str
    calls: int = 1
    valid: bool = True
    thinks: bool = False


def turns(name: str) -> Mapping[str, Turn]:
    """Return the turns of a family, by their peculiarity; the numbers are vLLM's issues and pull requests."""

    def call(word: str, function: str = "get_weather") -> str:
        return encode([WrittenItem("call", f'{{"city":"{word}"}}', function)], name)

    one, marker = call("w1x"), encode([WrittenItem("call", "{}", "f")], name).partition("f")[0].partition("\n")[0]
    end = one.index("w1x") + len("w1x")
    markers = family(name).markers
    after = _end_of_value(one, end, markers.get(Trigger.UNVALUE, LITERAL_ENDS))
    begin = thought(DEFAULT_REASONING[name] or "qwen3").partition("Hm.")[0]
    return {
        "one call": Turn(one),
        "text after": Turn(f"{one}Then w2x."),  # 57120
        "text between": Turn(f"{one}Now w2x.{call('w3x')}", 2),  # 56263, 56840, 47903
        "reasoning not ended": Turn(f"{begin}It is w2x.{one}", thinks=True),  # 51914, 52645
        "call not ended": Turn(one[:after], valid=False),  # 48931; such a call is incomplete
        "text in a call": Turn(f"{one[:after]} w2x {one[after:]}", valid=False),  # 48931
        "quoted marker": Turn(f"Write `{marker}` and w2x, then w3x.", 0),  # 56658
        "cut": Turn(one[: end - 1], valid=False),  # 55284
        "unknown tool": Turn(call("w1x", "unheard")),  # 36435
    }


def _end_of_value(call: str, at: int, ends: Sequence[str]) -> int:
    """Return where the end marker of a value ends, which begins at a place."""
    patterns = [*wild(ends).values(), *(re.compile(re.escape(end)) for end in ends)]
    return next(match.end() for match in (pattern.match(call, at) for pattern in patterns) if match)


def thought(reasoning: str) -> str:
    """Return a thought in a format of reasoning."""
    return encode([WrittenItem("reasoning", "Hm.")], "hermes", reasoning, thinking=False)


def interlock(stream: Stream, pieces: Sequence[str]) -> tuple[str, list[str]]:
    """Read a turn with a parser of ours."""
    parser = FamilyParser(family(stream.calls, stream.reasoning), ParserSettings.from_request(REQUEST), "between")
    deltas = [delta for piece in pieces for delta in parser.feed(Chunk(text=piece))]
    said, calls, active = "", list[str](), ""
    for delta in [*deltas, *parser.end("stop", Usage())]:
        match delta:
            case Open(kind, fields):
                active = kind
                said += str(fields.get("name", ""))
                calls += [""] if kind == "function_call" else []
            case str() if active == "function_call":
                calls[-1] += delta
            case str():
                said += delta
            case _:
                pass
    return said, calls


def wrong(read: Read, name: str, turn: Turn, tokens: int) -> str:
    """Return the faults of a result, one letter each; the page explains the letters.

    Args:
        read: The contender.
        name: The family.
        turn: What was written.
        tokens: In each delta.
    """
    reasoning = None if name in UNREAD else DEFAULT_REASONING[name]
    pieces = their_parsers.pieces_of(turn.text if reasoning is None or turn.thinks else thought(reasoning) + turn.text)
    joined = ["".join(pieces[at : at + tokens]) for at in range(0, len(pieces), tokens)]
    try:
        said, calls = read(Stream(name, reasoning, ""), joined)
    except Exception:  # noqa: BLE001 - whatever it is, a server would fail with it
        return "E"
    shown = " ".join([said, *calls])
    return "".join(
        letter
        for letter, found in (
            ("L", not set(WORD.findall(turn.text)) <= set(WORD.findall(shown))),
            ("T", len(calls) < turn.calls and set(WORD.findall(turn.text)) <= set(WORD.findall(shown))),
            ("J", turn.valid and not all(map(_is_object, calls))),
            ("C", len(calls) > turn.calls),
        )
        if found
    )


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def losses() -> Iterator[str]:
    """Yield a table of the losses of each side; Interlock's omits the families that it reads correctly."""
    columns = tuple(turns("hermes"))
    for side, read in (("vLLM", their_parsers.read_text), ("Interlock", interlock)):
        yield f"| {side} | {' | '.join(columns)} |"
        yield f"|---|{'---|' * len(columns)}"
        for name in their_parsers.names():
            cells = [
                " / ".join(dict.fromkeys(wrong(read, name, turn, tokens) or "·" for tokens in TOKENS))
                for turn in turns(name).values()
            ]
            if side == "vLLM" or set(cells) != {"·"}:
                yield f"| `{name}` | {' | '.join(cells)} |"
        yield ""
    yield "Interlock reads all turns of the other families correctly."


def main() -> None:
    """Measure, and write the section."""
    lines = [f"Measured on vLLM {version('vllm')} by `benchmarks/losses.py`.", "", *losses()]
    text = "\n".join(lines)
    PAGE.write_text(SECTION.sub(lambda found: f"{found[1]}{text}\n{found[2]}", PAGE.read_text("utf-8")), "utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
