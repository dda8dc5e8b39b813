"""Legal streams: the driver is fed what a model, its tools and a server might do, and the stream is what it makes of it.

So a stream is legal by construction, and has whatever the lifecycles allow. It knows deltas and no order of events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

import orjson

from interlock.events.dialects import DIALECTS, DialectName
from interlock.events.items import ITEMS, ItemKind, example, result_fields
from interlock.events.json import dumps
from interlock.events.resource import response_settings
from interlock.events.sse import DONE_FRAME, SseWriter
from interlock.fsm import deltas
from interlock.fsm.driver import ReadyCall, ResponseDriver
from interlock.fsm.ids import SequentialIds
from interlock.fsm.lifecycles import LIFECYCLES
from interlock.testing.chance import Chance, perhaps, some

Body: TypeAlias = dict[str, object]
Ending: TypeAlias = Literal["completed", "incomplete", "failed", "cancelled"]

KINDS: Final[tuple[ItemKind, ...]] = ("message", *(kind for kind in LIFECYCLES if kind != "message"))
"""Every kind of item; the simplest first."""
ENDINGS: Final[tuple[Ending, ...]] = ("completed", "incomplete", "failed", "cancelled")
"""The statuses in which a response can end; the simplest first."""

_SETTINGS: Final = response_settings({"model": "model", "input": "Hello"})
_NOW: Final = 1_700_000_000
_NAMES: Final = ("lookup", "send_mail")
_ACTIONS: Final = (
    {"type": "search", "query": "weather"},
    {"type": "open_page", "url": "https://example.com"},
    {"type": "find_in_page", "url": "https://example.com", "pattern": "rain"},
)
_ANNOTATIONS: Final = (
    {"type": "url_citation", "url": "https://example.com", "title": "Rain", "start_index": 0, "end_index": 1},
    {"type": "file_citation", "file_id": "file_1", "filename": "rain.txt", "index": 0},
)
_OPENINGS: Final[Mapping[ItemKind, tuple[Mapping[str, object], ...]]] = {
    "message": ({"phase": "final_answer"}, {"phase": "commentary"}, {}),
    **dict.fromkeys(("function_call", "custom_tool_call"), tuple({"name": name} for name in _NAMES)),
    "mcp_call": tuple({"name": name, "server_label": "deepwiki"} for name in _NAMES),
    "web_search_call": tuple({"action": action} for action in _ACTIONS),
    "file_search_call": ({"queries": ["weather"]}, {"queries": []}),
    "reasoning": ({}, {"encrypted_content": "c2VhbGVk"}),
    "apply_patch_call": (
        {"operation": {"type": "create_file", "path": "rain.txt", "diff": ""}},
        {"operation": {"type": "update_file", "path": "rain.txt", "diff": ""}},
    ),
    "tool_search_call": ({"execution": "client"}, {"execution": "server"}),
    "apply_patch_call_output": ({"call_id": "call_patch"}, {"call_id": "call_patch", "status": "failed", "output": "no"}),
    "tool_search_output": ({"call_id": None, "execution": "server", "tools": []},),
}
"""What an item may be opened with, for the kinds of which one example is not enough."""
_RESULTS: Final[Mapping[ItemKind, tuple[Mapping[str, object], ...]]] = {
    "mcp_call": ({"output": "rain"}, {"output": ""}),
    "mcp_list_tools": ({"tools": [{"name": "lookup", "input_schema": {"type": "object"}}]}, {}),
    "code_interpreter_call": ({"outputs": [{"type": "logs", "logs": "2"}]}, {"outputs": []}, {}),
    "file_search_call": ({"results": [{"file_id": "file_1", "text": "rain", "score": 0.5}]}, {}),
    "compaction": ({"encrypted_content": "c2VhbGVk"},),
}
_KNOWN_LATE: Final[Mapping[ItemKind, Mapping[str, object]]] = {
    "reasoning": {"encrypted_content": "c2VhbGVk"},
    "local_shell_call": {"action": {"type": "exec", "command": ["ls"], "env": {}}},
    "computer_call": {"action": {"type": "wait"}},
    "tool_search_call": {"arguments": {"paths": ["weather"]}},
    "program": {"code": "print()"},
}
"""What is known of an item of a kind when it is closed."""
_ENDS: Final[Mapping[Ending, tuple[deltas.Delta, ...]]] = {
    "completed": (deltas.Finish(),),
    "incomplete": (deltas.EndTurn("length"), deltas.EndTurn("content_filter")),
    "failed": (deltas.Fault("server_error", "It broke."), deltas.EndTurn("error")),
    "cancelled": (deltas.Cancel(), deltas.EndTurn("abort")),
}


def stream(
    chance: Chance,
    *,
    kinds: Sequence[ItemKind] = KINDS,
    endings: Sequence[Ending] = ENDINGS,
    min_items: int = 0,
    max_items: int = 4,
    dialect: DialectName = "openai",
) -> list[Body]:
    """Create a legal stream.

    Args:
        chance: Makes the choices.
        kinds: The kinds of item that it may have.
        endings: The statuses in which it may end.
        min_items: The least number of items that it begins; one without text is none.
        max_items: How many at most.
        dialect: In which dialect it is said.

    Returns:
        The bodies of its events, as plain JSON values that share nothing.
    """
    driver = ResponseDriver(_SETTINGS, writer=SseWriter(), ids=SequentialIds(), clock=lambda: _NOW)
    frames: list[bytes] = []

    def tell(*told: deltas.Delta) -> None:
        frames.extend(driver.feed(told))

    tell(*((deltas.Enqueue(),) if perhaps(chance) else ()), deltas.Start())
    made = Counter[str]()
    for _ in some(chance, min_items, max_items):
        kind = chance.choice(kinds)
        for delta in _item(chance, kind):
            tell(delta)
        made[kind] += 1
        _serve(chance, kind, f"{ITEMS[kind].prefix}_{made[kind]}", tell)  # its id, which `SequentialIds` made
        _work(chance, lambda: driver.ready, tell)
    tell(deltas.EndTurn("stop", deltas.Usage(input_tokens=chance.randint(0, 9), output_tokens=chance.randint(0, 9))))
    tell(chance.choice(_ENDS[chance.choice(endings)]))
    bodies = [cast("Body", orjson.loads(frame[frame.index(b"{") :])) for frame in frames]
    return [DIALECTS[dialect].spoken(body) for body in bodies] if dialect != "openai" else bodies


def frames(events: Sequence[Body]) -> bytes:
    """Return a stream as it goes over the wire, the end marker included.

    Args:
        events: The bodies of its events.
    """
    written = [b"event: %b\ndata: %b\n\n" % (str(body.get("type")).encode(), dumps(body)) for body in events]
    return b"".join([*written, DONE_FRAME])


def _item(chance: Chance, kind: ItemKind) -> Iterator[deltas.Delta]:
    """Write one item; whether it is closed is left open."""
    yield deltas.Open(kind, chance.choice(_OPENINGS.get(kind) or (example(kind),)))
    if kind in _WRITERS:
        write = chance.choice(_WRITERS[kind])
        for _ in some(chance, 0, 5):
            yield write(chance)
    match chance.randint(0, 3):
        case 1:
            pass  # the next delta closes it, or cuts it
        case 2:
            yield deltas.Reject("It makes no sense.")
        case _:
            yield deltas.Close(_KNOWN_LATE.get(kind, {}) if perhaps(chance) else {})


def _work(chance: Chance, ready: Callable[[], list[ReadyCall]], tell: Callable[[deltas.Delta], None]) -> None:
    """Run some of the calls that wait, at once, and end them in any order; those that are left are ended by the driver."""
    running = [call for call in ready() if perhaps(chance)]
    for call in running:
        tell(deltas.Run(call.id))
    while running:
        call = running.pop(chance.randint(0, len(running) - 1))
        for number in some(chance, 0, 2 if call.kind == "image_generation_call" else 0):
            tell(deltas.Progress(call.id, {"partial_image_b64": f"cGFydA{number}"}))
        match chance.randint(0, 2):
            case 0:
                tell(deltas.Succeed(call.id, chance.choice(_RESULTS.get(call.kind) or (result_fields(call.kind, "rain"),))))
            case 1:
                tell(deltas.Fail(call.id, "It broke."))
            case _:
                pass  # it never ends by itself


def _serve(chance: Chance, kind: ItemKind, item_id: str, tell: Callable[[deltas.Delta], None]) -> None:
    """Do what the server does for an item that it makes by itself: list tools, or run commands in a shell."""
    if kind not in {"mcp_list_tools", "shell_call_output"}:
        return
    for _ in some(chance, 0, 2 if kind == "shell_call_output" else 0):
        for _ in some(chance, 0, 2):
            tell(deltas.Progress(item_id, {"stdout": chance.text(), "stderr": chance.text()}))
        if perhaps(chance):
            tell(deltas.EndOutput(item_id, {"type": "exit", "exit_code": chance.randint(0, 1)}))
    match chance.randint(0, 2):
        case 0:
            tell(deltas.Succeed(item_id, chance.choice(_RESULTS.get(kind, ({},)))))
        case 1:
            tell(deltas.Fail(item_id, "It broke."))
        case _:
            pass


def _text(chance: Chance) -> deltas.Delta:
    return chance.text()


def _message(chance: Chance) -> deltas.Delta:
    match chance.randint(0, 7):
        case 5:
            return deltas.EndPart()
        case 6:
            return deltas.Annotate(chance.choice(_ANNOTATIONS))
        case 7:
            return deltas.Refusal(chance.text())
        case _:
            return chance.text()


def _token(chance: Chance) -> deltas.Delta:
    if perhaps(chance):
        return deltas.EndPart()
    token = chance.choice(("rain", "é", " "))
    return deltas.Text(token, [{"token": token, "bytes": list(token.encode()), "logprob": -0.5, "top_logprobs": []}])


def _reasoning(chance: Chance) -> deltas.Delta:
    match chance.randint(0, 5):
        case 4:
            return deltas.EndPart()
        case 5:
            return deltas.Summary(chance.text())
        case _:
            return chance.text()


def _commands(chance: Chance) -> deltas.Delta:
    return chance.text() if perhaps(chance) else deltas.EndPart()


_WRITERS: Final[Mapping[ItemKind, tuple[Callable[[Chance], deltas.Delta], ...]]] = {
    "message": (_message, _token),  # log probabilities are asked for or not
    "reasoning": (_reasoning,),
    "shell_call": (_commands,),
    **dict.fromkeys(("function_call", "custom_tool_call", "mcp_call", "code_interpreter_call", "apply_patch_call"), (_text,)),
}
"""The ways in which an item of a kind is written; a kind that is not here is written by nobody."""
