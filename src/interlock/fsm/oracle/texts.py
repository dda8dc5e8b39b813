"""The rules about text: parts and indices, full texts, log probabilities, blank items (R8, R9, R15 and R18 of docs/rules.md).

If the parts of an item are out of order, these rules treat it as an item without parts; `rules.r8_parts` reports the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, cast

from attrs import frozen

from interlock.fsm.oracle.grammar import IN_PARTS, PARTS
from interlock.fsm.oracle.stream_view import Item, Json, Stream, Violation, as_list, as_object

_BEGINS: Final = frozenset({"response.content_part.added", "response.reasoning_summary_part.added"})
_ANNOTATION: Final = "response.output_text.annotation.added"
_WHOLE: Final = {
    "function_call": "arguments",
    "mcp_call": "arguments",
    "custom_tool_call": "input",
    "code_interpreter_call": "code",
    "apply_patch_call": "diff",
}
"""The field that holds the text, by kind of item whose text has no parts."""


def _of_item(item: Json, field: str) -> object:
    """Return the text of an item. A diff is in the `operation`, which has none if it deletes a file."""
    return as_object(item.get("operation")).get("diff", "") if field == "diff" else item.get(field)


@frozen
class _Part:
    """The events of one part, each with its position in the stream."""

    events: list[tuple[int, Json]]

    @property
    def added(self) -> Json:
        """The event that begins the part."""
        return self.events[0][1]

    @property
    def text_done(self) -> Json:
        """The event with its full text."""
        return self.events[-2][1]

    @property
    def done(self) -> Json:
        """The event that ends the part."""
        return self.events[-1][1]

    @property
    def deltas(self) -> list[Json]:
        """The events with deltas of its text."""
        return [body for _, body in self.events if "delta" in body]

    @property
    def annotations(self) -> list[Json]:
        """The events that annotate its text."""
        return [body for _, body in self.events if body["type"] == _ANNOTATION]

    @property
    def end(self) -> int:
        """The position of its last event."""
        return self.events[-1][0]


def _parts(item: Item) -> list[_Part]:
    """Split an item into its parts; empty if they are out of order."""
    if not PARTS.fullmatch(item.word.translate(IN_PARTS)):
        return []
    parts: list[_Part] = []
    for place, body in item.events:
        if body["type"] in _BEGINS:
            parts.append(_Part([]))
        if "content_index" in body or "summary_index" in body:
            parts[-1].events.append((place, body))
    return parts


def _text_of(part: Json) -> str:
    """Return the text of a part or of its `<type>.done` event."""
    text: str = part["refusal"] if "refusal" in part else part["text"]
    return text


def r8_indices(stream: Stream) -> Iterator[Violation]:
    """R8: content_index and summary_index count from 0 in an item, annotation_index in a part."""
    for item in stream.items:
        counts = {"content_index": 0, "summary_index": 0}
        for part in _parts(item):
            name = "content_index" if "content_index" in part.added else "summary_index"
            for place, body in part.events:
                if body.get(name) != counts[name]:
                    yield Violation("R8", place, f"{name} is {body.get(name)} instead of {counts[name]}")
            counts[name] += 1
            numbers = [body["annotation_index"] for body in part.annotations]
            if numbers != list(range(len(numbers))):
                yield Violation("R8", part.end, f"the annotations of a part are numbered {numbers}")


def r9_text(stream: Stream) -> Iterator[Violation]:
    """R9: the deltas, the done event, the part and the item have the same text."""
    for item in stream.items:
        if field := _WHOLE.get(item.kind):
            yield from _whole_text(item, field)
        parts = _parts(item)
        for part in parts:
            yield from _part_text(part)
        for name, event in (("content", "content_part"), ("summary", "reasoning_summary_part")):
            done = [part.done["part"] for part in parts if part.done["type"] == f"response.{event}.done"]
            if item.added.get(name):
                yield Violation("R9", item.at, f"item {item.index} has {name} before its first part")
            if item.done is not None and (item.done.get(name) or []) != done:
                yield Violation("R9", item.end, f"the {name} of item {item.index} is not the parts that were done")
        yield from _commands(item)
        yield from _printed(item)


def _commands(item: Item) -> Iterator[Violation]:
    """R8, R9: compare the commands of a shell call with their deltas."""
    if item.kind != "shell_call":
        return
    if as_object(item.added.get("action")).get("commands"):
        yield Violation("R9", item.at, f"item {item.index} has commands before its first part")
    commands: list[str] = []
    for place, body in item.events:
        match body["type"].rpartition(".")[2] if "command_index" in body else "":
            case "added":
                commands.append(body["command"])
                if body["command"]:
                    yield Violation("R9", place, "a command is added with text")
            case "delta" if commands:
                commands[-1] += body["delta"]
            case "done" if commands and body["command"] != commands[-1]:
                yield Violation("R9", place, "a command differs from its deltas")
            case _:
                pass
        if body.get("command_index", len(commands) - 1) != len(commands) - 1:
            yield Violation("R8", place, f"command_index is {body['command_index']} instead of {len(commands) - 1}")
    if item.done is not None and as_list(as_object(item.done.get("action")).get("commands")) != commands:
        yield Violation("R9", item.end, f"the commands of item {item.index} are not those that were done")


def _printed(item: Item) -> Iterator[Violation]:
    """R8, R9: compare the outputs of a shell call with the deltas of those outputs."""
    if item.kind != "shell_call_output":
        return
    whole: list[object] = []
    printed, count = {"stdout": "", "stderr": ""}, 0
    for place, body in item.events:
        if "command_index" not in body:
            continue
        if body["command_index"] != count:
            yield Violation("R8", place, f"command_index is {body['command_index']} instead of {count}")
        if "delta" in body:
            printed = {name: text + str(body["delta"].get(name, "")) for name, text in printed.items()}
            continue
        for name, text in printed.items():
            if text and text != "".join([str(as_object(one).get(name, "")) for one in body["output"]]):
                yield Violation("R9", place, f"the {name} of a command is not what it printed")
        whole += body["output"]
        printed, count = {"stdout": "", "stderr": ""}, count + 1
    if count and item.done is not None and item.done.get("output") != whole:
        yield Violation("R9", item.end, f"the output of item {item.index} is not that of its commands")


def _whole_text(item: Item, field: str) -> Iterator[Violation]:
    """Compare the deltas of an item without parts with its text."""
    text = "".join([body["delta"] for _, body in item.events if "delta" in body])
    if _of_item(item.added, field):
        yield Violation("R9", item.at, f"item {item.index} has {field} before its deltas")
    for place, body in item.events:
        if field in body and body[field] != text:
            yield Violation("R9", place, f"{body['type']} differs from the deltas")
    if item.done is not None and _of_item(item.done, field) != text:
        yield Violation("R9", item.end, f"the {field} of item {item.index} differs from the deltas")


def _part_text(part: _Part) -> Iterator[Violation]:
    """Compare the deltas of a part with its text."""
    text = "".join([body["delta"] for body in part.deltas])
    first, done = part.added["part"], part.done["part"]
    if first["type"] != done["type"] or first["type"] != _part_type(part.text_done["type"]):
        yield Violation("R9", part.end, f"a part begins as {first['type']} and ends as {done['type']}")
        return
    if _text_of(first) or first.get("annotations") or first.get("logprobs"):
        yield Violation("R9", part.events[0][0], "a part is not empty when it is added")
    if _text_of(part.text_done) != text:
        yield Violation("R9", part.end - 1, f"{part.text_done['type']} differs from the deltas")
    if _text_of(done) != text:
        yield Violation("R9", part.end, "the part differs from the deltas")
    if done.get("annotations", []) != [body["annotation"] for body in part.annotations]:
        yield Violation("R9", part.end, "the annotations of the part are not those that were added")


def _part_type(event: str) -> str:
    """Return the part type for the name of a `<type>.done` event."""
    return event.split(".")[1].replace("reasoning_summary_text", "summary_text")


def r15_logprobs(stream: Stream) -> Iterator[Violation]:
    """R15: output text has logprobs in every delta and done event; they agree, and their tokens, if any, make up the text."""
    for item in stream.items:
        for place, body in item.events:
            if body["type"] in {"response.output_text.delta", "response.output_text.done"}:
                logprobs = body.get("logprobs")
                if logprobs is None or not all(_is_logprob(entry) for entry in logprobs):
                    yield Violation("R15", place, f"{body['type']} has no valid logprobs")
                    return
        for part in _parts(item):
            if part.text_done["type"] == "response.output_text.done":
                yield from _part_logprobs(part)


def _is_logprob(entry: object) -> bool:
    """Return whether a value is the log probability of a token."""
    fields = as_object(entry)
    sound = isinstance(fields.get("token"), str) and type(fields.get("logprob")) in {int, float}
    if fields.get("bytes") is not None and not isinstance(fields["bytes"], list):
        return False
    alternatives: object = fields.get("top_logprobs")
    sound = (
        sound
        and (alternatives is None or isinstance(alternatives, list))
        and all(map(_is_logprob, as_list(cast("object", alternatives))))
    )
    return sound and all(type(byte) is int and byte in range(256) for byte in as_list(fields.get("bytes")))


def _tokens(entries: Iterable[object]) -> list[tuple[object, object]]:
    """Return the token and value of each log probability; they must agree in all events of a part."""
    return [(fields.get("token"), fields.get("logprob")) for fields in map(as_object, entries)]


def _part_logprobs(part: _Part) -> Iterator[Violation]:
    """Compare the log probabilities of a part's deltas with its text, its `<type>.done` event and the part itself."""
    entries = [entry for body in part.deltas for entry in body["logprobs"]]
    of_part = part.done["part"].get("logprobs")
    wholes = (part.text_done["logprobs"], entries if of_part is None else of_part)
    if any(_tokens(whole) != _tokens(entries) for whole in wholes):
        yield Violation("R15", part.end, "the logprobs of a part are not those of its deltas")
    if entries and not _rebuilds(entries, _text_of(part.text_done)):
        yield Violation("R15", part.end, "the tokens of the logprobs do not make up the text")


def _rebuilds(entries: list[Json], text: str) -> bool:
    """Return whether tokens make up a text; a token that ends inside a character needs its `bytes`."""
    if "".join([entry["token"] for entry in entries]) == text:
        return True
    data = b"".join([bytes(as_list(entry.get("bytes"))) or entry["token"].encode() for entry in entries])
    return data.decode(errors="replace") == text


def r18_empties(stream: Stream) -> Iterator[Violation]:
    """R18: no message or reasoning item has blank text or a blank first delta; reasoning may have no parts."""
    for item in stream.items:
        if item.kind not in {"message", "reasoning"} or item.done is None:
            continue
        first = next((body["delta"] for _, body in item.events if "delta" in body), "")
        parts = [*as_list(item.done.get("content")), *as_list(item.done.get("summary"))]
        if item.kind == "reasoning" and not parts:
            continue  # its content is encrypted or omitted
        if not "".join([_text_of(part) for part in parts]).strip():
            yield Violation("R18", item.at, f"item {item.index} is a {item.kind} without text")
        elif not first.strip():
            yield Violation("R18", item.at, f"item {item.index} begins with white space alone")
