"""The rules of a stream: their names, their texts, and the consequences of breaking them.

docs/rules.md and `interlock check --explain` print these sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from attrs import frozen

Sort: TypeAlias = Literal["order", "content"]
"""The subject of a rule: the order of events, or their content."""


@frozen
class Rule:
    """A rule of a Responses stream.

    Args:
        number: `R1` to `R20`.
        name: One or two words.
        says: The text of the rule.
        breaks: The consequence of breaking it; empty for a rule that one stream cannot show.
        sort: Its subject.
    """

    number: str
    name: str
    says: str
    breaks: str
    sort: Sort


RULES: Final[Mapping[str, Rule]] = {
    rule.number: rule
    for rule in (
        Rule(
            "R1",
            "opening",
            "A stream begins with `response.created` and `response.in_progress`, each exactly once; a background response may "
            "have `response.queued` between them.",
            "Clients build the response object from `response.created`; the `openai` package raises without it.",
            "order",
        ),
        Rule(
            "R2",
            "numbering",
            "The `sequence_number` of the first event is 0, and that of each later event is one higher. Only the event itself "
            "has this field.",
            "A client that resumes a response after the last number that it received misses events or repeats them.",
            "order",
        ),
        Rule(
            "R3",
            "ending",
            "The stream ends with exactly one terminal event, whose name matches the response's status (`cancelled` ends with "
            "`response.incomplete`). Over HTTP, `data: [DONE]` follows and the body ends.",
            "A client waits forever, or cannot tell a complete answer from a lost connection.",
            "order",
        ),
        Rule(
            "R4",
            "failure",
            "If the response fails after its first event, the open items end first; then `response.failed` gives the reason in "
            "`error.code` and `error.message`.",
            "An open item seems to run forever, and a client cannot handle a failure without a reason.",
            "order",
        ),
        Rule(
            "R5",
            "framing",
            "Each event is one server-sent event: an `event` line with the same type as the body, one `data` line, line feeds "
            "only, and no `id`. The media type is `text/event-stream`.",
            "Clients lose every event that they cannot decode as a server-sent event or as JSON.",
            "content",
        ),
        Rule(
            "R6",
            "index",
            "The `output_index` of the first item is 0, and each item that is added later has the next number.",
            "Clients keep items in a list by this index, so they lose items or mix them up; the `openai` package raises.",
            "order",
        ),
        Rule(
            "R7",
            "bracket",
            "An item has exactly one `response.output_item.added` and one `response.output_item.done` event, with the same id, "
            "`call_id`, `name` and index. All its other events come between these two.",
            "A client attributes events with another id to the wrong item, or raises.",
            "order",
        ),
        Rule(
            "R8",
            "parts",
            "Parts are counted from 0. Each part is added, receives its text, and is done before the next one begins.",
            "Clients append text to the wrong part; the `openai` package raises if no part has the `content_index` of a delta.",
            "order",
        ),
        Rule(
            "R9",
            "text",
            "The deltas of a text, joined, equal the text in its `done` event, in the part, in the item and in the terminal "
            "response, character for character.",
            "A client that shows deltas and a client that shows the final text show different answers.",
            "content",
        ),
        Rule(
            "R10",
            "lifecycle",
            "The events of an item follow the lifecycle of its kind, and only one item is written at a time.",
            "The client's own state of the item becomes wrong: a call never starts, or a text never ends.",
            "order",
        ),
        Rule(
            "R11",
            "truth",
            "If the server runs a tool, the event for its start comes when the tool starts, the event for its completion only "
            "after it has succeeded, and the item contains the result or the failure.",
            "A client shows that a tool ran when it did not, or finds no result where one was announced.",
            "order",
        ),
        Rule(
            "R12",
            "cut",
            "An item whose text is cut off is `incomplete` and is the last item, and the response is not `completed`. An "
            "`incomplete` response gives the reason in `incomplete_details`, or null if the model left a call unfinished.",
            "A client mistakes half an answer, or half of a call's arguments, for the whole.",
            "order",
        ),
        Rule(
            "R13",
            "final",
            "The terminal response contains all items in order, exactly as their `done` events had them, and the token usage.",
            "Clients store the terminal response, so the next request lacks any content that is missing there.",
            "content",
        ),
        Rule(
            "R14",
            "fields",
            "Every event, item and part has the required fields of its type, no field that belongs to another level (such as "
            "`output_index` in an item), and no null where the API omits the field.",
            "Typed clients raise on a missing field or a wrong type, or read a wrong value.",
            "content",
        ),
        Rule(
            "R15",
            "logprobs",
            "The events `response.output_text.delta` and `.done` have `logprobs`: an empty list, unless the request asks for log "
            "probabilities. Then the tokens in the list, joined, are the text.",
            "A client that asks for log probabilities attributes them to the wrong tokens.",
            "content",
        ),
        Rule(
            "R16",
            "chunking",
            "Items and texts do not depend on how the model's tokens are divided into chunks.",
            "",
            "content",
        ),
        Rule(
            "R17",
            "totality",
            "Any sequence of tokens becomes a legal stream, which contains no control token, and all text that the model wrote, "
            "except what R18 and R20 leave out.",
            "",
            "content",
        ),
        Rule(
            "R18",
            "empties",
            "A call without arguments is an item, and so is reasoning whose content is encrypted or withheld. A message or "
            "reasoning of only white space is not an item: leading white space waits until other text follows.",
            "No client breaks; the rule is for the streams that Interlock writes.",
            "content",
        ),
        Rule(
            "R19",
            "one truth",
            "A response that is not streamed equals the response that the terminal event of its stream would contain.",
            "",
            "content",
        ),
        Rule(
            "R20",
            "families",
            "Some models write calls and reasoning as text between markers. The items and the markers together contain exactly "
            "what the model wrote, except blank text (R18) and, if the request forbids parallel calls, all calls of a turn "
            "after the first. Until the name of a call is complete, its marker may still turn out to be text.",
            "",
            "content",
        ),
    )
}
"""Every rule by its number."""
