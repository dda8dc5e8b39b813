"""Hides the texts of a stream behind marks, and shows only listed fields, so that unknown fields cannot leak."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias, cast


class Leaf(Enum):
    """What to show of a field."""

    WORD = "the value, even a string: an id, kind or state"
    NUMBER = "the value of a number or boolean, but only the length of a string"
    TEXT = "only the length of a string"


Place: TypeAlias = "Leaf | Mapping[str, Place]"
"""What to show of a field, or of each field of an object or of the objects in a list; other fields are hidden."""


def _place(words: str, numbers: str = "", texts: str = "", **inner: Place) -> Place:
    leaves = ((words, Leaf.WORD), (numbers, Leaf.NUMBER), (texts, Leaf.TEXT))
    return {**{name: leaf for names, leaf in leaves for name in names.split()}, **inner}


TOP: Final = _place("", "logprob", "token")
LOGPROB: Final = _place("", "logprob", "token", top_logprobs=TOP)
ANNOTATION: Final = _place("type container_id", "index start_index end_index", "title url file_id filename")
PART: Final = _place("type", "content_index", "text refusal", annotations=ANNOTATION, logprobs=LOGPROB)
ERROR: Final = _place("type", "", "code message param", content=PART)
OUTPUT: Final = _place("type", "", "logs url text stdout stderr", outcome=_place("type", "exit_code"))
TOOL: Final = _place("type name server_label", "strict defer_loading", "description parameters input_schema annotations format")
ITEM: Final = _place(
    "type id status role phase call_id name namespace server_label container_id approval_request_id execution",
    "output_index sequence_number",
    "arguments input code result encrypted_content queries revised_prompt fingerprint quality size output_format background",
    content=PART,
    summary=PART,
    action=_place(
        "type",
        "timeout_ms max_output_length",
        "query queries url pattern command commands env",
        sources=_place("type", "", "url name"),
    ),
    operation=_place("type", "", "path diff"),
    output=OUTPUT,
    outputs=OUTPUT,
    results=_place("", "score", "text filename file_id attributes"),
    tools=TOOL,
    caller=_place("type", "", "caller_id"),
    error=ERROR,
)
RESPONSE: Final = _place(
    "id object status model previous_response_id service_tier truncation",
    "created_at completed_at background store parallel_tool_calls temperature top_p top_logprobs "
    "frequency_penalty presence_penalty max_output_tokens max_tool_calls sequence_number",
    "instructions input metadata user safety_identifier prompt_cache_key prompt_cache_retention tool_choice",
    output=ITEM,
    tools=TOOL,
    error=ERROR,
    incomplete_details=_place("reason"),
    reasoning=_place("effort", "", "summary"),
    text=_place("", "", "verbosity", format=_place("type", "strict", "name schema description")),
    conversation=_place("id"),
    usage=_place(
        "",
        "input_tokens output_tokens total_tokens",
        input_tokens_details=_place("", "cached_tokens cache_write_tokens"),
        output_tokens_details=_place("", "reasoning_tokens"),
    ),
)
EVENT: Final = _place(
    "type item_id response_id call_id name",
    "sequence_number output_index content_index summary_index annotation_index command_index partial_image_index",
    "delta text refusal arguments input code diff command obfuscation partial_image_b64 message param",
    annotation=ANNOTATION,
    error=ERROR,
    item=ITEM,
    logprobs=LOGPROB,
    output=OUTPUT,
    part=PART,
    response=RESPONSE,
)

HIDDEN: Final = "•"
MUCH: Final = HIDDEN * 3
"""The mark for values without a length, and for hidden fields."""

_QUOTED: Final = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


def redacted(value: object, place: Place = EVENT) -> object:
    """Return a JSON value with a mark for each character of its texts, and without fields that are not listed."""
    match value, place:
        case (None, _) | (str(), Leaf.WORD) | (bool() | int() | float(), Leaf.WORD | Leaf.NUMBER):
            return value
        case str(), _:
            return HIDDEN * len(value)
        case dict(), Mapping():
            members = cast("dict[str, object]", value)
            fields = {name: redacted(inner, place[name]) for name, inner in members.items() if name in place}
            return {**fields, MUCH: len(members) - len(fields)} if len(fields) < len(members) else fields
        case list(), Mapping():
            entries = cast("list[object]", value)
            return [MUCH if isinstance(inner, list) else redacted(inner, place) for inner in entries]
        case _:
            return MUCH


def without_quotes(message: str) -> str:
    """Return the message of a finding without its quotations of the stream."""
    return _QUOTED.sub(f"'{MUCH}'", message)
