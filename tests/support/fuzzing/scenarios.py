"""Scenarios: random lists of deltas for a driver, and their form as JSON.

A delta names its item by `#0`, `#1`, …, counted back from the newest item, because ids are only known when the driver runs;
`resolved` replaces the reference by the id. So a scenario stays usable when Hypothesis drops some of its deltas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import attrs
from hypothesis import strategies as st

from interlock.events.items import ITEMS, ItemKind, result_fields
from interlock.events.json import clean
from interlock.fsm import deltas
from interlock.fsm.deltas import Delta, FinishReason
from interlock.fsm.driver import ResponseDriver
from interlock.verify.proof import FIELDS

_TEXT = st.sampled_from(["a", "é", " ", "\n", "", '"}\\', "\u2028", "😀", "%d", "\ud800"]) | st.text(st.characters(), max_size=8)
_NAMES = st.text("abc_.-é", min_size=1, max_size=4)
_REFERENCE = st.integers(0, 4).map("#{}".format)
_MESSAGE = st.sampled_from(["It broke.", "é😀", "\ud800"])
_COUNT = st.integers(0, 9)
_USAGE = st.builds(deltas.Usage, **dict.fromkeys((field.name for field in attrs.fields(deltas.Usage)), _COUNT))
_CITATION = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 1}


def _cited(mark: str) -> deltas.Annotate:
    return deltas.Annotate({"type": "url_citation", "url": "https://example.org", "title": "E"}, mark)


_CALL_ID = st.sampled_from([None, "", "call_1", "call_2", "mine"]) | _NAMES
_ACTION = st.sampled_from(
    [
        {"type": "search", "query": "signals"},
        {"type": "open_page", "url": "https://example.org"},
        {"type": "find_in_page", "url": "https://example.org", "pattern": "signal"},
    ]
)
_FIELDS = {
    "reasoning": {"encrypted_content": st.sampled_from(["", "sealed"])},
    "message": {"phase": st.sampled_from(["commentary", "final_answer"])},
    "function_call": {"name": _NAMES, "call_id": _CALL_ID},
    "custom_tool_call": {"name": _NAMES, "call_id": _CALL_ID},
    "mcp_call": {"server_label": _NAMES, "name": _NAMES},
    "mcp_list_tools": {"server_label": _NAMES},
    "mcp_approval_request": {"server_label": _NAMES, "name": _NAMES, "arguments": st.just("{}")},
    "code_interpreter_call": {},
    "web_search_call": {"action": _ACTION},
    "file_search_call": {"queries": st.lists(_NAMES, max_size=2)},
    "image_generation_call": {},
}


def _fields(kind: ItemKind) -> st.SearchStrategy[dict[str, object]]:
    fields = _FIELDS.get(kind)
    return st.just({**FIELDS[kind]}) if fields is None else st.fixed_dictionaries(fields)


_OPEN = st.sampled_from(list(ITEMS)).flatmap(lambda kind: st.builds(deltas.Open, st.just(kind), _fields(kind)))
_PLAIN = _TEXT | st.builds(deltas.Text, _TEXT, st.just(()))


def _with_logprobs(texts: list[str]) -> deltas.Text:
    tokens = [{"token": text, "bytes": [*text.encode()], "logprob": -0.5, "top_logprobs": []} for text in texts]
    return deltas.Text("".join(texts), tokens)


_WITH_LOGPROBS = st.lists(_TEXT.map(clean), min_size=1, max_size=2).map(_with_logprobs)
_DELTA = st.one_of(
    _OPEN,
    st.sampled_from([deltas.Close({"encrypted_content": "sealed"}), deltas.Close({"code": "go", "action": {"type": "wait"}})]),
    st.builds(deltas.EndOutput, _REFERENCE, st.just({"type": "exit", "exit_code": 1})),
    st.sampled_from([deltas.Close(), deltas.EndPart(), deltas.Annotate(_CITATION), *map(_cited, ["a", "é", "\n", "😀"])]),
    st.builds(deltas.Summary, _TEXT),
    st.builds(deltas.Run, _REFERENCE),
    st.builds(deltas.Progress, _REFERENCE, st.just({"partial_image_b64": "aW1hZ2U="})),
    st.builds(deltas.Succeed, _REFERENCE, st.just({}) | st.fixed_dictionaries({"output": _TEXT})),
    st.builds(deltas.Fail, _REFERENCE, _MESSAGE),
    st.builds(deltas.Reject, _MESSAGE),
    st.builds(deltas.EndTurn, st.just("stop"), _USAGE),
    st.sampled_from([deltas.Start(), deltas.Enqueue()]),
)
_END = st.one_of(
    st.just(deltas.Finish()),
    st.just(deltas.Cancel()),
    st.builds(deltas.Fault, st.sampled_from(["server_error", "rate_limit_exceeded"]), _MESSAGE),
    st.builds(deltas.EndTurn, st.sampled_from(get_args(FinishReason)), _USAGE),
)


def _scenarios() -> st.SearchStrategy[list[Delta]]:
    steps = st.one_of(_PLAIN | _WITH_LOGPROBS, _DELTA, st.builds(deltas.Refusal, _TEXT))
    before, after = st.lists(steps, max_size=24), st.lists(steps, max_size=2)
    return st.builds(lambda *parts: [delta for part in parts for delta in part], before, st.lists(_END, max_size=2), after)


SCENARIOS = _scenarios()


_ACTIONS: Final[dict[str | None, dict[str, object]]] = {
    "web_search_call": {"type": "search", "query": "noise"},
    "local_shell_call": {"type": "exec", "command": ["ls"], "env": {}},
}
"""The actions of the kinds of item whose action is not a computer's."""


def resolved(delta: Delta, driver: ResponseDriver[Any]) -> Delta:
    """Return a delta with the id of its item, and with a result or an action that fits the item's kind."""
    if isinstance(delta, deltas.Close) and "action" in delta.fields:
        return deltas.Close({**delta.fields, "action": _ACTIONS.get(_kind(driver), delta.fields["action"])})
    if not isinstance(delta, deltas.Run | deltas.Progress | deltas.EndOutput | deltas.Succeed | deltas.Fail):
        return delta
    output = driver.response["output"][::-1]
    place = int(delta.item_id[1:])
    if place >= len(output):
        return delta
    item = output[place]
    with_id = attrs.evolve(delta, item_id=item["id"])
    if isinstance(with_id, deltas.Progress) and item["type"] == "shell_call_output":
        return attrs.evolve(with_id, fields={"stdout": "signals\n", "stderr": ""})
    if isinstance(with_id, deltas.Succeed):
        return attrs.evolve(
            with_id,
            fields=result_fields(item["type"], str(with_id.fields.get("output", ""))) if with_id.fields else {},
        )
    return with_id


def _kind(driver: ResponseDriver[Any]) -> str | None:
    """Return the kind of the newest item, which is the active one if any is active."""
    output = driver.response["output"]
    return output[-1]["type"] if output else None


def _arguments(delta: Delta) -> dict[str, Any]:
    """Return the arguments that create a delta."""
    names = {attribute.name for attribute in attrs.fields(type(delta)) if attribute.init}
    return attrs.asdict(delta, filter=lambda attribute, _: attribute.name in names)


def to_json(scenario: Sequence[Delta]) -> list[Any]:
    """Return a scenario as JSON values: a text stays a string; any other delta is its name and its fields."""
    return [delta if isinstance(delta, str) else [type(delta).__name__, _arguments(delta)] for delta in scenario]


def from_json(scenario: Sequence[Any]) -> list[Delta]:
    """Return the scenario that `to_json` returned as JSON values."""
    return [delta if isinstance(delta, str) else _build(*delta) for delta in scenario]


def _build(name: str, fields: dict[str, Any]) -> Delta:
    if "usage" in fields:
        fields = {**fields, "usage": deltas.Usage(**fields["usage"])}
    delta: Delta = getattr(deltas, name)(**fields)
    return delta
