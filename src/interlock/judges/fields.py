"""Checks the fields of events (rule R14 of docs/evidence/rules.md).

`event_mismatches` compares the fields with their types. This module finds the deviations among the mismatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from interlock.events.items import ITEMS
from interlock.events.json import as_text, members
from interlock.events.parts import ContentPart, OutputPart, SummaryText
from interlock.events.rulebook import Finding
from interlock.events.shapes import Mismatch, name_of, param_of
from interlock.events.stream import StreamEvent, event_mismatches
from interlock.judges.digests import json_type, quote

_OF_ANOTHER_LEVEL: Final = frozenset(
    {
        *("sequence_number", "output_index", "item_id", "content_index", "summary_index", "delta"),
        *("logprobs", "response", "item", "part"),
    }
)
"""Fields of events and of what they contain; on any other object they are errors, not vendor fields."""
_NEWER: Final = frozenset(
    {
        *(("Response", name) for name in ("parallel_tool_calls", "tool_choice", "tools")),
        *(("ResponseUsage", name) for name in ("input_tokens_details", "output_tokens_details")),
    }
)
"""Fields that older services omit and no client requires."""
_PARTS: Final = frozenset(map(name_of, (*get_args(OutputPart), SummaryText)))
_KNOWN: Final = frozenset({*ITEMS, *map(name_of, get_args(ContentPart))})
"""The types of items and parts in the API; in the wrong place they are errors, not unknown items."""
_FREE: Final = frozenset({"attributes", "env"})
"""The objects with arbitrary field names."""
_NOUNS: Final = {"content": "part", "summary": "part"}


def check_fields(event: type[StreamEvent], body: Mapping[str, object]) -> tuple[list[Finding], bool]:
    """Check the fields of an event and of its item, part or response.

    Returns:
        The findings, and whether the other rules can read the fields.
    """
    differences = event_mismatches(event, body)
    findings = [*map(_finding, differences)]
    readable = all(
        finding.deviation or mismatch.kind in {"unknown", "tag"} for finding, mismatch in zip(findings, differences, strict=True)
    )
    return findings, readable


def is_unknown_part(body: Mapping[str, object]) -> bool:
    """Return whether an event has a part of an unknown type."""
    kind = as_text(members(body.get("part")).get("type"))
    return bool(kind) and kind not in _PARTS


def _finding(mismatch: Mismatch) -> Finding:
    last = max(at for at, step in enumerate(mismatch.path) if isinstance(step, str))
    above = [step for step in mismatch.path[:last] if isinstance(step, str)]
    field, value = param_of(mismatch.path[last:]), mismatch.value
    name = mismatch.type if mismatch.type.islower() or not above else above[-1]
    deviation = _deviation(mismatch, field)
    field = quote(field) if above and above[-1] in _FREE else field
    if field == "type" and mismatch.kind != "unknown":
        message = f"the API has no {_NOUNS.get(above[-1], above[-1].removesuffix('s'))} of type {quote(value)}"
    elif mismatch.kind == "unknown":
        message = f"{name} has no field {quote(field)}"
    elif mismatch.kind == "missing":
        message = f"{name}: {field} is missing"
    elif mismatch.kind == "value":
        message = f"{name}: {field} is {quote(value)} instead of {mismatch.expected}"
    else:
        message = f"{name}: {field} is {json_type(value)}"
    return Finding("R14", message, deviation)


def _deviation(mismatch: Mismatch, field: str) -> str:
    """Return the deviation of a mismatch; empty for an error."""
    match mismatch.kind:
        case "unknown" if field not in _OF_ANOTHER_LEVEL:
            return "vendor-field"
        case "null":
            return "null"
        case "type" if mismatch.path == ("logprobs",) and mismatch.value is None:
            return "null"
        case "tag" if mismatch.value not in _KNOWN:
            return "unknown-item"
        case "missing" if (mismatch.type, field) in _NEWER:
            return "field-of-newer"
        case _:
            return ""
