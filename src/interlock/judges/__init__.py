"""Judges the streams of any service, as `interlock check` does; the judge of Responses is built from the driver's lifecycles.

Another judge, `interlock.verify.oracle`, is written from the rules alone and reads full streams. Tests compare the two.

    judging       validates the bytes of a stream of Responses; the base of the judges of other APIs
    acceptor      validates the events of a stream of Responses
    stream_items  the items of a stream: their indices and ids, their places in their lifecycles, and their texts
    automaton     the possible states of a machine, inferred from events
    contents      the contents of events, compared with their types and with earlier events
    whole         the last response of a stream, compared with the answer that is not streamed
    digests       readers and digests of JSON values, and deltas compared with the full text
    messages      judges streams of Messages
    chat          judges streams of Chat Completions
    dialects      finds out which API a stream is of
"""

from interlock.dialects import ApiName
from interlock.events.rulebook import DEVIATIONS, RULES, Deviation, Finding, Rule, Severity
from interlock.judges.acceptor import Acceptor
from interlock.judges.automaton import Transition
from interlock.judges.dialects import DIALECT_JUDGES, DIALECT_RULES, AnyJudge
from interlock.judges.judging import DialectJudge, Judge, JudgedMessage, Verdict, judge

__all__ = [
    "DEVIATIONS",
    "DIALECT_JUDGES",
    "DIALECT_RULES",
    "RULES",
    "Acceptor",
    "AnyJudge",
    "ApiName",
    "Deviation",
    "DialectJudge",
    "Finding",
    "Judge",
    "JudgedMessage",
    "Rule",
    "Severity",
    "Transition",
    "Verdict",
    "judge",
]
