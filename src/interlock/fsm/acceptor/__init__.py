"""The declared lifecycles, run as a recogniser over somebody else's stream (`interlock check`).

It is built from the same tables as the driver. The other judge, `interlock.fsm.oracle`, is written from the rules alone
and sees whole streams; tests hold the two against each other.

    judging      a judge of one stream: bytes in, a verdict out
    acceptor     the judge of a stream's events
    register     the items of a stream
    track        one item: its lifecycle and its texts
    automaton    a lifecycle run backwards, from events to states
    contents     what the events of an item say, compared with earlier ones
    fields       fields that are not as their type says
    text_digest  texts compared with their wholes
    ending       the end of a stream
    hindsight    what each event did to a lifecycle
    rulebook     the rules and their severity
    deviations   deviations of real services that clients bear
    finding      what is found
    json_digest  JSON values, read and compared
"""

from interlock.fsm.acceptor.acceptor import Acceptor
from interlock.fsm.acceptor.finding import Finding, Severity
from interlock.fsm.acceptor.deviations import HABITS, Deviation
from interlock.fsm.acceptor.judging import Judge, Judged, Reported, Verdict, judge
from interlock.fsm.acceptor.rulebook import RULES, Rule
from interlock.fsm.acceptor.hindsight import Fired, Step

__all__ = [
    "HABITS",
    "RULES",
    "Acceptor",
    "Finding",
    "Fired",
    "Deviation",
    "Judge",
    "Judged",
    "Reported",
    "Rule",
    "Severity",
    "Step",
    "Verdict",
    "judge",
]
