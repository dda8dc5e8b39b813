"""What real services do that no rule allows and that every client tried copes with: deviations, and what is not judged.

What OpenAI's own service sends is among them wherever its documents say otherwise. `tests/clients/deviations.py` has a stream
for each that can be sent, which every client was played. A fault that names none of these habits is an error: the published
contract, or a known client, breaks on it. The table is
data: the acceptor names a habit, `docs/rules.md` and `interlock check --explain` show what is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.fsm.acceptor.finding import Severity


@frozen
class Deviation:
    """One thing that real services do.

    Args:
        name: What findings call it.
        rule: The rule that it departs from.
        what: What is seen in the stream.
        why: Why it is no error.
        seen: Who was seen to do it; a dash for nobody yet, where it is allowed for its reason alone.
        severity: `deviation`, or `not_judged` where nothing is known of what came.
    """

    name: str
    rule: str
    what: str
    why: str
    seen: str
    severity: Severity = "deviation"


HABITS: Final[Mapping[str, Deviation]] = {
    habit.name: habit
    for habit in (
        Deviation(
            "resumed",
            "R1",
            "the first event is none that opens a stream, and its number is not 0",
            "a response that is resumed begins in the middle; `--from` says that this is meant",
            "services that resume a stream",
        ),
        Deviation(
            "unnumbered",
            "R2",
            "no event of the stream has a `sequence_number`",
            "only a client that resumes a response reads the numbers",
            "older services",
        ),
        Deviation(
            "no-done-marker",
            "R3",
            "`data: [DONE]` does not follow the terminal event",
            "clients end at the terminal event; Open Responses demands the marker, and there it is an error",
            "every service seen",
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
            "clients raise at the `error` event and read no further",
            "—",
        ),
        Deviation(
            "no-event-line",
            "R5",
            "messages have no `event:` line",
            "clients read the type in the data; only a browser's `EventSource` needs the line",
            "—",
        ),
        Deviation(
            "framing",
            "R5",
            "lines end with CR LF, messages have ids or several lines of data",
            "the standard of server-sent events allows it, and its decoders read it",
            "—",
        ),
        Deviation(
            "bare-lines",
            "R5",
            "a file has one JSON object in each line and no server-sent events",
            "recorders keep the data alone; framing cannot be judged then",
            "recorded files",
        ),
        Deviation(
            "foreign-id",
            "R7",
            "an id does not begin as its kind does in OpenAI's API",
            "clients compare ids and do not read them",
            "services other than OpenAI",
        ),
        Deviation(
            "unread-at-added",
            "R7",
            "the `call_id` of a `tool_search_call` is another when it is done",
            "clients take it from `done`",
            "OpenAI",
        ),
        Deviation(
            "never-done",
            "R7",
            "the listing of an MCP server's tools says that it completed, and is not done",
            "clients take the tools from the terminal response, or need none",
            "OpenAI",
        ),
        Deviation(
            "text-at-once",
            "R9",
            "the arguments of an MCP call come with their `done` and without a delta",
            "clients take them from `done`; other texts are lost by clients that read deltas alone",
            "OpenAI",
        ),
        Deviation(
            "begins-whole",
            "R9",
            "an item is added with its whole text, and no delta follows",
            "clients take the item as `added` or `done` show it",
            "—",
        ),
        Deviation(
            "logprobs-elsewhere",
            "R9",
            "an item has log probabilities that its part has not, or others",
            "no client reads them twice",
            "OpenAI",
        ),
        Deviation(
            "status-at-added",
            "R10",
            "an item is added with the status in which it ends",
            "clients wait for `done` in any case",
            "OpenAI (`shell_call_output`), xAI",
        ),
        Deviation(
            "status-behind",
            "R10",
            "an item is done and its status still says that it runs",
            "clients take `done` for the end",
            "OpenAI: image generation (`generating`), calls of programs (`in_progress`)",
        ),
        Deviation(
            "status-of-tool",
            "R10",
            "a tool's last event says that it completed, and the item's status says that it did not",
            "clients show the item's status",
            "hosted tools",
        ),
        Deviation(
            "no-middle",
            "R10",
            "a search is done with no event since it was added, or the call of a custom tool with none that ends its input",
            "clients take it from `done`",
            "xAI (searches), a recording of the AI SDK (custom tool)",
        ),
        Deviation(
            "late-done",
            "R10",
            "an item is done after the next one has begun",
            "clients know items by their index or id",
            "xAI, OpenRouter",
        ),
        Deviation(
            "result-at-added",
            "R11",
            "a hosted call is added with its result",
            "clients take the result from `done`",
            "—",
        ),
        Deviation(
            "encrypted-content",
            "R13",
            "the terminal response has another `encrypted_content`, or `fingerprint`, than `done` had",
            "each is a valid encryption of the same",
            "OpenAI",
        ),
        Deviation(
            "null-or-absent",
            "R13",
            "a field is null in `done` and absent in the terminal response, or the other way round",
            "clients read both as nothing",
            "—",
        ),
        Deviation(
            "other-in-final",
            "R13",
            "a log probability or a status that was behind differs in the terminal response",
            "no client reads it twice",
            "—",
        ),
        Deviation(
            "failed-without-output",
            "R13",
            "a response that failed or was cancelled shows none of its items",
            "clients have the items by then",
            "—",
        ),
        Deviation(
            "usage",
            "R13",
            "`usage` is missing in a response that was not completed, has no details, or does not add up",
            "clients only show it",
            "older services",
        ),
        Deviation(
            "vendor-field",
            "R14",
            "an event, item or part has a field that the API does not have",
            "clients pass over fields that they do not know",
            "GitHub Copilot (`copilot_usage`), Azure (`content_filters`)",
        ),
        Deviation(
            "null",
            "R14",
            "a field is null that the API leaves out",
            "the types of the `openai` package allow null wherever a field may be absent",
            "LM Studio",
        ),
        Deviation(
            "field-of-newer",
            "R14",
            "a response has no `parallel_tool_calls`, `tool_choice` or `tools`, or its usage no details",
            "clients read them where they are",
            "older services",
        ),
        Deviation(
            "nested-error",
            "R14",
            "the fields of an `error` event are nested, as in Open Responses",
            "the `openai` package raises on it as it does on the flat form",
            "OpenAI",
        ),
        Deviation(
            "no-logprobs",
            "R15",
            "text events have no `logprobs`, or null",
            "clients take it for an empty list",
            "older services, xAI (`output_text.done`)",
        ),
        Deviation(
            "tokens-differ",
            "R15",
            "the tokens of the log probabilities do not make up the text",
            "clients show text and tokens apart",
            "—",
        ),
        Deviation(
            "blank",
            "R18",
            "a message is blank, or begins with a delta of white space alone",
            "clients show nothing; the rule binds what is sent here, where it can be kept",
            "OpenAI (an empty message after an image)",
        ),
        Deviation(
            "unknown-event",
            "R14",
            "the API has no event of that name",
            "nobody knows what it means; place, numbering and ids are judged",
            "—",
            "not_judged",
        ),
        Deviation(
            "unknown-item",
            "R14",
            "the API has no item, part or action of that type",
            "likewise; its `added`, `done`, index and ids are judged",
            "—",
            "not_judged",
        ),
    )
}
"""Every habit by its name."""
