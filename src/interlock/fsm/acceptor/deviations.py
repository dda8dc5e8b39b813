"""Departures from the rules of docs/rules.md that break no client.

A fault without a deviation is an error. The table includes departures of OpenAI's service from its own documentation. The tests
in `tests/clients` play a stream with each deviation that clients can meet to every client; docs/rules.md and
`interlock check --explain` print the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.fsm.acceptor.finding import Severity


@frozen
class Deviation:
    """A departure from a rule that is not an error.

    Args:
        name: The name in findings.
        rule: The broken rule.
        what: The departure.
        why: Why it is not an error.
        senders: The services that send it; a dash if none is known.
        severity: `deviation`, or `not_judged` for unknown events and items.
    """

    name: str
    rule: str
    what: str
    why: str
    senders: str
    severity: Severity = "deviation"


DEVIATIONS: Final[Mapping[str, Deviation]] = {
    deviation.name: deviation
    for deviation in (
        Deviation(
            "resumed",
            "R1",
            "the stream begins in the middle, with a number other than 0",
            "a resumed stream begins in the middle; `--from N` declares this",
            "services that resume a stream",
        ),
        Deviation(
            "unnumbered",
            "R2",
            "no event has a `sequence_number`",
            "only clients that resume a response read the numbers",
            "older services",
        ),
        Deviation(
            "no-done-marker",
            "R3",
            "`data: [DONE]` does not follow the terminal event",
            "clients stop at the terminal event; Open Responses requires the marker, so it is an error in that dialect",
            "every service tested",
        ),
        Deviation(
            "another-stream",
            "R3",
            "another response begins after the terminal event",
            "recorders write several streams into one file; each is judged by itself",
            "recorded files",
        ),
        Deviation(
            "error-is-last",
            "R3",
            "an `error` event ends the stream, and no terminal event follows",
            "clients raise at the `error` event and stop reading",
            "—",
        ),
        Deviation(
            "no-event-line",
            "R5",
            "messages have no `event:` line",
            "clients read the type from the data; only a browser's `EventSource` needs the line",
            "—",
        ),
        Deviation(
            "framing",
            "R5",
            "lines end with CR LF, messages have ids or several lines of data, or a file lacks its last empty line",
            "decoders of server-sent events read it; only recorders drop the last line",
            "—",
        ),
        Deviation(
            "bare-lines",
            "R5",
            "a file has one JSON object per line instead of server-sent events",
            "recorders keep only the data; the framing is then not judged",
            "recorded files",
        ),
        Deviation(
            "foreign-id",
            "R7",
            "an id lacks the prefix that OpenAI uses for its kind",
            "clients compare ids and never parse them",
            "services other than OpenAI",
        ),
        Deviation(
            "unread-at-added",
            "R7",
            "a `tool_search_call` has different call ids in `added` and `done`",
            "clients read it from `done`",
            "OpenAI",
        ),
        Deviation(
            "never-done",
            "R7",
            "an `mcp_list_tools` item has no `done` event after its `completed` or `failed` event",
            "clients read the tools from the terminal response, or not at all",
            "OpenAI",
        ),
        Deviation(
            "text-at-once",
            "R9",
            "an MCP call's arguments come in their `done` event without a delta",
            "clients read these arguments from `done`, but other texts from deltas",
            "OpenAI",
        ),
        Deviation(
            "begins-whole",
            "R9",
            "an item is added with its complete text, and no delta follows",
            "clients read the item from `added` or `done`",
            "—",
        ),
        Deviation(
            "logprobs-elsewhere",
            "R9",
            "the log probabilities of a part differ between `content_part.done` and `output_item.done`, or only one has them",
            "no client reads both",
            "OpenAI",
        ),
        Deviation(
            "status-at-added",
            "R10",
            "an item is added with its final status",
            "clients wait for `done` anyway",
            "OpenAI (`shell_call_output`), xAI",
        ),
        Deviation(
            "status-behind",
            "R10",
            "the status in an item's `done` event says that the item still runs",
            "clients treat `done` as the end",
            "OpenAI: image generation (`generating`), calls of programs (`in_progress`)",
        ),
        Deviation(
            "status-of-tool",
            "R10",
            "a tool's last event says `completed`, but the item has another status",
            "clients show the item's status",
            "hosted tools",
        ),
        Deviation(
            "no-middle",
            "R10",
            "a search has no event between `added` and `done`, or a custom tool call has no event that ends its input",
            "clients read the item from `done`",
            "xAI (searches), a recording of the AI SDK (custom tool)",
        ),
        Deviation(
            "late-done",
            "R10",
            "an item is done after the next one has begun",
            "clients identify items by index or id",
            "xAI, OpenRouter",
        ),
        Deviation(
            "result-at-added",
            "R11",
            "a hosted call is added with its result",
            "clients read the result from `done`",
            "—",
        ),
        Deviation(
            "encrypted-content",
            "R13",
            "`encrypted_content` or `fingerprint` differs between `done` and the terminal response",
            "each is a valid encryption of the same content",
            "OpenAI",
        ),
        Deviation(
            "null-or-absent",
            "R13",
            "a field is null in `done` and absent in the terminal response, or the reverse",
            "clients treat null and absent alike",
            "—",
        ),
        Deviation(
            "other-in-final",
            "R13",
            "log probabilities, or an outdated status, differ in the terminal response",
            "no client reads both",
            "—",
        ),
        Deviation(
            "failed-without-output",
            "R13",
            "a failed or cancelled response lists none of its items",
            "clients already have the items",
            "—",
        ),
        Deviation(
            "usage",
            "R13",
            "`usage` is missing in a response that did not complete, lacks a details object, or does not add up",
            "clients only display it",
            "older services",
        ),
        Deviation(
            "vendor-field",
            "R14",
            "an event, item or part has a field that the API does not have",
            "clients ignore unknown fields",
            "GitHub Copilot (`copilot_usage`), Azure (`content_filters`)",
        ),
        Deviation(
            "null",
            "R14",
            "a field that the API omits is null",
            "the types of the `openai` package allow null wherever a field may be absent",
            "LM Studio",
        ),
        Deviation(
            "field-of-newer",
            "R14",
            "a response lacks `parallel_tool_calls`, `tool_choice` or `tools`, or its usage lacks a details object",
            "clients read these fields only where they are present",
            "older services",
        ),
        Deviation(
            "nested-error",
            "R14",
            "the fields of an `error` event are nested, as in Open Responses",
            "the `openai` package raises for both forms",
            "OpenAI",
        ),
        Deviation(
            "no-logprobs",
            "R15",
            "text deltas, or their `done` events, have no `logprobs`",
            "clients treat that as an empty list",
            "older services, xAI (`output_text.done`)",
        ),
        Deviation(
            "tokens-differ",
            "R15",
            "the tokens of the log probabilities do not make up the text",
            "clients show text and tokens separately",
            "—",
        ),
        Deviation(
            "blank",
            "R18",
            "a message or reasoning is blank, or begins with a delta of only white space",
            "clients show nothing; the rule is for the streams that Interlock writes",
            "OpenAI (an empty message after an image)",
        ),
        Deviation(
            "unknown-event",
            "R14",
            "the API has no event of that name, or no item of the API has the event (`response.audio.delta`)",
            "its meaning is unknown; its number is judged, and that it does not follow the `done` of its item",
            "—",
            "not_judged",
        ),
        Deviation(
            "unknown-item",
            "R14",
            "the API has no item, part or action of that type",
            "its meaning is unknown; its `added`, `done`, index and ids are judged",
            "—",
            "not_judged",
        ),
    )
}
"""Every deviation by its name."""
