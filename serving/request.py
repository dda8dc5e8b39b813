"""The body of `POST /v1/responses`, read and judged. (being written: `parse_request` follows)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen


@frozen
class CreateResponse:
    """A valid request for a response."""

    raw: Mapping[str, object]
    model: str
    input: Sequence[Mapping[str, object]]
    instructions: str | None = None
    stream: bool = False
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    parallel_tool_calls: bool = True
    tools: Sequence[Mapping[str, object]] = ()
    tool_choice: str | Mapping[str, object] = "auto"
    include: Sequence[str] = ()
    top_logprobs: int = 0
