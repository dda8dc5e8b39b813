"""A wrong declaration is refused when it is made, by a message that names the state or the edge."""

import pytest
from each import each

from interlock.fsm.emissions import added, done, progress, text_delta, text_done, text_part_added
from interlock.fsm.errors import DeclarationError
from interlock.fsm.lifecycle import Lifecycle
from interlock.fsm.table import Edge

OPEN = Edge("absent", "open", "started", [added])
CUT = Edge("started", "cut", "ended", [done])

WRONG = {
    "state 'started' has two edges for 'cut'": [OPEN, CUT, CUT],
    "state 'lost' cannot be reached": [OPEN, CUT, Edge("lost", "cut", "ended", [done])],
    "state 'ended' is final but has edges": [OPEN, CUT, Edge("ended", "linger", "ended")],
    "state 'stuck' has no way to a final state": [
        OPEN,
        CUT,
        Edge("started", "wait", "stuck"),
        Edge("stuck", "wait", "stuck"),
    ],
    "state 'absent' has no way to a final state": [OPEN, Edge("started", "cut", "started")],
    "state 'started' has no edge for 'cut'": [OPEN, Edge("started", "close", "ended", [done])],
    "'cut' in state 'started' does not lead to a final state": [
        OPEN,
        Edge("started", "cut", "cutting"),
        Edge("cutting", "cut", "ended", [done]),
    ],
    "state 'started' has no edge for 'fail'": [OPEN, CUT, Edge("started", "succeed", "ended", [done])],
    "'fail' in state 'started' does not lead to a final state": [
        OPEN,
        CUT,
        Edge("started", "succeed", "ended", [done]),
        Edge("started", "fail", "started"),
    ],
    "'open' in state 'absent' emits response.output_item.done in place 'outside', not 'item'": [
        Edge("absent", "open", "started", [done]),
        CUT,
    ],
    "'append' in state 'started' emits response.output_text.delta in place 'item', not 'part'": [
        OPEN,
        CUT,
        Edge("started", "append", "started", [text_delta]),
    ],
    "'cut' in state 'started' emits response.output_item.done in place 'part', not 'item'": [
        OPEN,
        CUT,
        Edge("started", "append", "started", [text_part_added]),
    ],
    "state 'ended' is entered in place 'after' and in place 'item'": [OPEN, CUT, Edge("started", "close", "ended")],
    "state 'ended' is final in place 'part_done'": [
        OPEN,
        Edge("started", "cut", "ended", [text_part_added, text_done]),
    ],
    "state 'after' is not final, but the item has ended": [
        OPEN,
        CUT,
        Edge("started", "close", "after", [done]),
        Edge("after", "cut", "ended"),
    ],
}


@each("message", WRONG)
def test_an_invalid_lifecycle_is_refused(message):
    with pytest.raises(DeclarationError) as caught:
        Lifecycle(name="thing", initial="absent", final={"ended"}, edges=WRONG[message])
    assert str(caught.value) == f"table 'thing': {message}"


def test_a_final_state_that_no_edge_enters_is_refused():
    with pytest.raises(DeclarationError) as caught:
        Lifecycle(name="thing", initial="absent", final={"ended", "never"}, edges=[OPEN, CUT])
    assert str(caught.value) == "table 'thing': state 'never' cannot be reached"


def test_a_final_state_may_be_entered_without_an_event():
    lifecycle = Lifecycle(
        name="thing",
        initial="absent",
        final={"dropped"},
        edges=[Edge("absent", "open", "pending"), Edge("pending", "cut", "dropped")],
    )
    assert [*lifecycle.states] == ["absent", "pending", "dropped"]


def test_a_valid_lifecycle_is_accepted():
    assert [*Lifecycle(name="thing", initial="absent", final={"ended"}, edges=[OPEN, CUT]).states] == [
        "absent",
        "started",
        "ended",
    ]


def test_a_progress_event_that_no_item_declares_is_refused():
    with pytest.raises(DeclarationError, match=r"^`ProgressName` in events/items.py has no 'response.mcp_call.started'$"):
        progress("mcp_call.started")
