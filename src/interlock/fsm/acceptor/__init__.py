"""The declared lifecycles, run as a recogniser over somebody else's stream (`interlock check`).

It is built from the same tables as the driver. The other judge, `interlock.fsm.oracle`, is written from the rules alone
and sees whole streams; tests hold the two against each other.
"""

from interlock.fsm.acceptor.acceptor import Acceptor
from interlock.fsm.acceptor.finding import Finding, Severity
from interlock.fsm.acceptor.habits import HABITS, Habit
from interlock.fsm.acceptor.judging import Judge, Judged, Reported, Verdict, judge
from interlock.fsm.acceptor.rules import RULES, Rule
from interlock.fsm.acceptor.trace import Fired, Step

__all__ = [
    "HABITS",
    "RULES",
    "Acceptor",
    "Finding",
    "Fired",
    "Habit",
    "Judge",
    "Judged",
    "Reported",
    "Rule",
    "Severity",
    "Step",
    "Verdict",
    "judge",
]
