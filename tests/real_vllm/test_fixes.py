"""fixes.py: each fix removes its fault from vLLM's own serving class, and a request without fixes gets vLLM's own stream."""

import asyncio
import warnings
from types import SimpleNamespace

import fixes
import pytest
from servers import HAS_EXAMPLE, RELEASE
from speed.outputs import ANALYSIS, ANSWER, CALL, NEXT, encode, output

from interlock.judges import judge

if not HAS_EXAMPLE:
    pytest.skip("the fixes are for vLLM 0.32 and 0.33", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM and what it imports warn about many things

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from speed.theirs import OpenAIServingResponses, drain_harmony

CUT = {"R3", "R13"} if RELEASE < (0, 33) else {"R13"}
"""The rules that a text breaks which the limit of tokens cuts; 0.33 has fixed the last event."""
CODE = "<|channel|>analysis to=python code<|message|>1<|call|><|start|>assistant"


async def app(scope, _receive, _send):
    drain_harmony(scope["steps"], scope["write"], OpenAIServingResponses)


SERVER = fixes.Fixes(app)


def rules(text, reason, number):
    """Return the rules that vLLM's stream breaks for an output and with a number of fixes."""
    step, frames = output(encode(text)), []
    step.outputs[0].finish_reason, step.finished = reason, True
    request = {"type": "http", "headers": [(b"fixes", str(number).encode())], "steps": [step], "write": frames.append}
    asyncio.run(SERVER(request, None, None))
    return {finding.rule for finding in judge(frames).findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("fix", "text", "reason", "broken", "left"),
    [
        (fixes.last_event, f"{ANSWER}Hello", "length", CUT, {"R13"}),
        (fixes.fields_of_events, f'{CALL}{{"city": "Rome"}}<|call|>', "stop", {"R13", "R14"}, set()),
        (fixes.empty_items, f"{ANALYSIS}{NEXT}{ANSWER}Hello.<|return|>", "stop", {"R6", "R13"}, set()),
        (fixes.code_calls, f"{CODE}{ANSWER}Hello.<|return|>", "stop", {"R13"}, set()),
        (fixes.status_of_items, f"{ANSWER}Hello", "length", CUT, set()),
    ],
)
def test_a_fix_removes_its_fault(fix, text, reason, broken, left):
    number = fixes.FIXES.index(fix) + 1
    assert (rules(text, reason, 0), rules(text, reason, number)) == (broken, left)


def delta(reasoning=None, content=None, calls=()):
    return SimpleNamespace(reasoning=reasoning, content=content, tool_calls=calls)


def test_a_text_loses_the_white_space_around_it():
    parsed = [delta("\n"), delta(content="\n\n"), delta(content=" I \n"), None, delta(content="look.\n"), delta(calls=["call"])]
    bare = fixes._bare_deltas(iter(parsed).__next__)
    left = [delta("\n"), None, delta(content="I"), None, delta(content=" \nlook."), delta(calls=["call"])]
    assert [bare() for _ in range(6)] == left
    assert fixes._bare_text(lambda: ("Hm.", "\n\n", []))() == ("Hm.", None, [])
