"""The grammar of a stream: the lifecycles of the response and of every kind of item, and what holds between them.

    response      the response itself
    text_items    reasoning and messages
    client_calls  calls that the client runs, and items that come whole
    hosted_calls  calls of tools that the server runs, and what the server makes itself

**A stream is lifecycles that run together**: one of the response, and one of each item. A lifecycle is a finite-state machine,
written as a table: in this state, on this trigger, go to that state and emit these events. Only an edge that fires emits events,
so no stream can have an order of events that no path through a table has.

**What a table says.** A state is named after the status that the item then shows, if the API has that status for its kind;
otherwise after what is happening, and the item shows `in_progress`. In `absent` nothing is known of an item, in `pending` no
event has shown it yet, and in `ready` a call waits for its tool. The triggers mean the same everywhere:

- `open`, `close`: the item begins; nothing more will be written to it
- `append`: text, of the only text of an item or of a part of it
- `refuse`, `summarize`: text of a refusal, or of a summary of the reasoning
- `pad`: white space that waits for other text
- `split`: text with log probabilities after text without them, or the reverse
- `annotate`: a citation of the open part
- `end_part`, `end_output`: the open part, or the output of a shell command, is complete
- `reveal`: the item has encrypted content, so it is shown even if it has no text
- `run`, `progress`: the tool of a hosted call starts, or has output
- `succeed`, `fail`: the tool ended with a result, or without
- `cut`: the item has to end now, whatever is missing

Two rules hold for every table, and its construction checks them (`interlock.fsm.lifecycle`). Events are nested: each has a
place before it and one after it, outside the item, in it, in a part, and so on (`interlock.events.stream.Place`), and on every
path the places meet. And every state that can last leads to a final state with `cut`, and with `fail` if a tool or the response
could still fail there, so a stream can end legally at any moment.

**What a table cannot say** is said here, and done by the driver, nowhere else. One rule holds between items: at most one is
being written. It is the *active item*, whose state has an edge for `close`; the others wait for their tools. An item that opens
closes the active one first. And in six places the driver chooses the trigger, because the choice depends on contents, which no
state has:

1. White space fires `pad` instead of `append` in a state that has `pad` (rule R18).
2. Text fires `split` instead of `append` if only one of the text so far and the new text has log probabilities (rule R15).
3. An item with encrypted content also fires `reveal`, after it opens and before it closes (rule R18).
4. A turn that stops inside a call cuts the response; inside text, which is complete wherever it stops, it only closes the item
   (rule R12).
5. A delta that its item cannot take first fires what makes it legal: text for which the active item has no edge opens a message or
   a reasoning item, and a result of a tool that has not started starts it (`State.paths`).
6. The arguments of a call that are blank or `null` are `{}`, because clients and tools need an object: such a text waits, and
   before `close` a call without any other text fires `append` for `{}` (rule R18).

Otherwise there are no conditions: no guard on an edge, no flag beside a state. A delta for which no path exists changes nothing.
"""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from interlock.events.items import ItemKind
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.lifecycles.client_calls import CLIENT_CALLS, WHOLE
from interlock.fsm.lifecycles.hosted_calls import HOSTED_CALLS
from interlock.fsm.lifecycles.response import RESPONSE
from interlock.fsm.lifecycles.text_items import TEXT_ITEMS
from interlock.fsm.subjects import AnyItem, ResponseState

__all__ = ["DECLARED", "LIFECYCLES", "RESPONSE", "Lifecycles"]

LIFECYCLES: Final[Mapping[ItemKind, Lifecycle[AnyItem]]] = {
    lifecycle.name: lifecycle for lifecycle in (*TEXT_ITEMS, *CLIENT_CALLS, *HOSTED_CALLS, *WHOLE)
}
"""The lifecycle of each kind of item."""


@frozen
class Lifecycles:
    """The lifecycles of a driver."""

    response: Lifecycle[ResponseState]
    items: Mapping[ItemKind, Lifecycle[AnyItem]]


DECLARED: Final = Lifecycles(RESPONSE, LIFECYCLES)
"""The lifecycles in this package. Only tests of the proof use others, with defects that the proof must find."""
