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
            "`response.created` and `response.in_progress` come first, once each; a background response may have "
            "`response.queued` between them.",
            "The `openai` package raises, because clients build the response object from `created`.",
            "order",
        ),
        Rule(
            "R2",
            "numbering",
            "`sequence_number` counts every event of the response from 0 and appears nowhere but on the event itself.",
            "A client that resumes a response after the last number that it saw misses events or repeats them.",
            "order",
        ),
        Rule(
            "R3",
            "ending",
            "Exactly one terminal event comes last and agrees with the response's status; on the wire `data: [DONE]` "
            "follows and the connection closes.",
            "Clients wait forever, or cannot tell a complete answer from a lost connection.",
            "order",
        ),
        Rule(
            "R4",
            "failure",
            "Whatever breaks after the first event, open items are closed and `response.failed` gives the reason in "
            "`error.code` and `error.message`.",
            "An open item seems to run forever, and clients cannot handle a failure without a reason.",
            "order",
        ),
        Rule(
            "R5",
            "framing",
            "`event` equals the body's type; there is one line of data, line feeds only, no id, and `Content-Type: "
            "text/event-stream`.",
            "Clients lose whatever cannot be decoded as a server-sent event or as JSON.",
            "content",
        ),
        Rule(
            "R6",
            "index",
            "`output_index` counts the items from 0 in the order in which they are added.",
            "Clients, which keep items in a list by this index, lose items or mix them up; the `openai` package raises.",
            "order",
        ),
        Rule(
            "R7",
            "bracket",
            "An item has one `added` and one `done` event with the same id, `call_id`, `name` and index; no event of "
            "the item comes before `added` or after `done`.",
            "A client attributes events with another id to the wrong item, or raises.",
            "order",
        ),
        Rule(
            "R8",
            "parts",
            "Parts are counted from 0; each is added, written, finished and closed before the next begins.",
            "Clients append deltas to the wrong part; the `openai` package raises if there is none at their `content_index`.",
            "order",
        ),
        Rule(
            "R9",
            "text",
            "The deltas joined equal the text in `done`, in the part, in the item and in the final response, "
            "character for character.",
            "A client that shows deltas and a client that shows the final text would show different answers.",
            "content",
        ),
        Rule(
            "R10",
            "lifecycle",
            "An item's events are a path through the lifecycle of its kind, and one item is written at a time.",
            "From there on the client's own state of the item is wrong: a call that never starts, a text that never ends.",
            "order",
        ),
        Rule(
            "R11",
            "truth",
            "A tool's events are sent when it starts and when it has ended, and its result is in the item.",
            "A client shows that a tool ran when it did not, or finds no result where one was announced.",
            "order",
        ),
        Rule(
            "R12",
            "cut",
            "An item that is cut is `incomplete` and is the last item; the response is `incomplete` too, with its "
            "reason (none for a call left open).",
            "A client takes half an answer, or half of a call's arguments, for the whole.",
            "order",
        ),
        Rule(
            "R13",
            "final",
            "The terminal response has the items exactly as their `done` events had them, in order, and the token usage.",
            "Clients store the terminal response, so streamed content that it lacks is lost with the next request.",
            "content",
        ),
        Rule(
            "R14",
            "fields",
            "An event, item or part has the fields of its type and no field of another level, and omits absent values.",
            "Typed clients raise on a missing field or a wrong type, or read nonsense.",
            "content",
        ),
        Rule(
            "R15",
            "logprobs",
            "Text events have `logprobs`, empty unless requested; if requested, their tokens rebuild the text.",
            "A client that requested log probabilities attributes them to the wrong tokens.",
            "content",
        ),
        Rule(
            "R16",
            "chunking",
            "The division of tokens into chunks changes no item and no text.",
            "",
            "content",
        ),
        Rule(
            "R17",
            "totality",
            "Any sequence of tokens gives a legal stream that has all of the text and no control token.",
            "",
            "content",
        ),
        Rule(
            "R18",
            "empties",
            "A call without arguments is an item. A blank message or blank reasoning is not, and leading white space "
            "waits for other text. Reasoning with encrypted or withheld content is an item without text.",
            "No client breaks; the rule binds the streams that Interlock writes.",
            "content",
        ),
        Rule(
            "R19",
            "one truth",
            "A response that is not streamed equals the terminal response of the same run.",
            "",
            "content",
        ),
        Rule(
            "R20",
            "families",
            "For text with markers, the items and the framing together are what the model wrote. A marker is "
            "tentative until a call's name is complete, and becomes text again if no name follows. If the request "
            "forbids parallel calls, a turn's later calls are left out.",
            "",
            "content",
        ),
    )
}
"""Every rule by its number."""
