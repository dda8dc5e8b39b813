"""The rules as a finding cites them: the name of each, what it says, and why breaking it is an error.

The same words stand in `docs/rules/` and are printed by `interlock check --explain`. What departs from a rule and is no error
is in `interlock.fsm.acceptor.deviations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from attrs import frozen

Sort: TypeAlias = Literal["order", "content"]
"""What a rule is about: the order of events, or what they carry."""


@frozen
class Rule:
    """One rule.

    Args:
        number: `R1` to `R20`.
        name: One or two words.
        says: What it says, in one sentence.
        breaks: What goes wrong where it is broken; empty for a rule that one stream cannot show.
        sort: What it is about.
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
            "`response.created` and `response.in_progress` come first, once each; a background response may say "
            "`response.queued` between them.",
            "A client makes its response object of `created`; the `openai` package raises if another event comes first.",
            "order",
        ),
        Rule(
            "R2",
            "numbering",
            "`sequence_number` counts every event of the response from 0, and stands nowhere but in the event itself.",
            "A client that resumes a response names the last number that it has seen; a gap means that an event was lost.",
            "order",
        ),
        Rule(
            "R3",
            "ending",
            "One terminal event, the last, agrees with the response's status; on the wire `data: [DONE]` follows and the "
            "connection closes.",
            "A client waits for the terminal event. Without one it cannot tell a whole answer from a lost connection.",
            "order",
        ),
        Rule(
            "R4",
            "failure",
            "Whatever breaks after the first event, open items are closed and `response.failed` says what happened in "
            "`error.code` and `error.message`.",
            "An item that is left open is shown as running for ever, and a failure without a reason cannot be handled.",
            "order",
        ),
        Rule(
            "R5",
            "framing",
            "`event` repeats the body's type, one line of data, line feeds only, no id, `Content-Type: text/event-stream`.",
            "What cannot be decoded as a server-sent event, or as JSON, is lost to every client.",
            "content",
        ),
        Rule(
            "R6",
            "index",
            "`output_index` counts the items from 0 in the order in which they are added.",
            "Clients keep items in a list by this index; the `openai` package raises on one that is skipped.",
            "order",
        ),
        Rule(
            "R7",
            "bracket",
            "An item has one `added` and one `done`, with the same id, `call_id`, `name` and index; nothing about it comes "
            "before the one or after the other.",
            "Events that name another item, or none that is open, are attributed to the wrong one or raise.",
            "order",
        ),
        Rule(
            "R8",
            "parts",
            "Parts are counted from 0, and each is added, written, finished and closed before the next.",
            "Clients append deltas to the part at their `content_index`; the `openai` package raises if there is none.",
            "order",
        ),
        Rule(
            "R9",
            "text",
            "The deltas joined are the text that `done`, the part, the item and the final response show, character for "
            "character.",
            "A client that shows deltas and one that shows the final text show different answers.",
            "content",
        ),
        Rule(
            "R10",
            "lifecycle",
            "An item's events are a path through the lifecycle of its kind, and one item is written at a time.",
            "A client's own state of the item is wrong from there on: a call that never starts, a text that never ends.",
            "order",
        ),
        Rule(
            "R11",
            "truth",
            "A tool's events come when it starts and when it has ended, and its result is in the item.",
            "A client shows that a tool ran that did not, or finds no result where it was told of one.",
            "order",
        ),
        Rule(
            "R12",
            "cut",
            "What is cut is `incomplete` and the last item; so is the response, with its reason, or none for a call left open.",
            "A client takes half an answer, or half a call's arguments, for the whole.",
            "order",
        ),
        Rule(
            "R13",
            "final",
            "The terminal response shows the items as their `done` did, in order, and what they cost.",
            "Clients store the terminal response; what was streamed and is not in it is lost with the next request.",
            "content",
        ),
        Rule(
            "R14",
            "fields",
            "An event, item or part has the fields of its type, no field of another level, and leaves out what is absent.",
            "Typed clients raise on a field that is missing or of a wrong type, or read nonsense.",
            "content",
        ),
        Rule(
            "R15",
            "logprobs",
            "Text events have `logprobs`, empty if nobody asked; asked for, their tokens rebuild the text.",
            "A client that asked for log probabilities attributes them to the wrong tokens.",
            "content",
        ),
        Rule("R16", "chunking", "How the tokens are divided into chunks changes no item and no text.", "", "content"),
        Rule(
            "R17",
            "totality",
            "Any sequence of tokens gives a legal stream that has all of its text and no control token.",
            "",
            "content",
        ),
        Rule(
            "R18",
            "empties",
            "A call without arguments is an item; a message or reasoning that is blank is none, and white space before text "
            "waits for it. Reasoning whose content is encrypted or withheld is an item without text.",
            "Nothing breaks; the rule binds what is sent here.",
            "content",
        ),
        Rule("R19", "one truth", "What is not streamed is the terminal response of the same run.", "", "content"),
        Rule(
            "R20",
            "families",
            "For text with markers too, items and framing together are what the model wrote; a marker is tentative until a "
            "call's name is whole, and is given back if it is not. Where a request wants no parallel calls, those after a "
            "turn's first are left out.",
            "",
            "content",
        ),
    )
}
"""Every rule by its number."""
