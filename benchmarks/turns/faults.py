"""The faults behind the errors of recorded streams: the lines of vLLM that make them, and when `openai` raises for them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import httpx
import openai
from attrs import field, frozen

from interlock.judges.dialects import AnyJudge


@frozen
class Place:
    """A line of vLLM's source.

    Args:
        path: Of its file.
        function: The function that has it, after its class and a dot if several classes have one.
        mark: What the line contains; the first such line of the function is meant.
    """

    path: str
    function: str
    mark: str

    def __str__(self) -> str:
        return f"{self.path} {self.function}: {self.mark}"

    def line(self, root: Path) -> int:
        """Return its number in the source that is installed in a folder. Raises `LookupError` if the source has no such line."""
        source = (root / self.path).read_text(encoding="utf-8")
        lines, tree = source.splitlines(), ast.parse(source)
        owner, _, name = self.function.rpartition(".")
        owners = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == owner] if owner else [tree]
        for node in (inner for each in owners for inner in ast.walk(each)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    if self.mark in lines[number - 1]:
                        return number
        raise LookupError(f"{self.path} has no {self.mark!r} in {self.function}")


@frozen
class Fault:
    """What a server does wrong.

    Args:
        says: A sentence about it.
        pattern: Finds its symptoms, among those of `symptoms`.
        harm: What it breaks, one of `HARMS`.
        places: The lines of vLLM that make it.
        reports: Issues and pull requests of vLLM about it, as paths: `issues/57998`.
        turn: The recorded turn that shows it.
    """

    says: str
    pattern: str
    harm: str
    places: tuple[Place, ...] = ()
    reports: tuple[str, ...] = ()
    turn: str = ""


@frozen
class Counts:
    """How often a fault was seen.

    Args:
        errors: How many errors it makes, by rule.
        turns: How many turns have one.
        raises: In how many turns the `openai` package raises because of it.
    """

    errors: Counter[str] = field(factory=Counter[str])
    turns: int = 0
    raises: int = 0


_RESPONSES: Final = "vllm/entrypoints/openai/responses/"
_EVENTS: Final = f"{_RESPONSES}streaming_events.py"
_HARMONY: Final = f"{_RESPONSES}harmony.py"
_SERVING: Final = f"{_RESPONSES}serving.py"

NO_END: Final = "no end"
OPENAI_RAISES: Final = "`openai` raises"
WRONG_STREAM: Final = "content of the stream"
WRONG_LAST_EVENT: Final = "content of the last event"
WRONG_WHOLE: Final = "content if not streamed"
NOTHING_TRIED: Final = "nothing tried"
HARMS: Final = (NO_END, OPENAI_RAISES, WRONG_STREAM, WRONG_LAST_EVENT, WRONG_WHOLE, NOTHING_TRIED, "")
"""What a fault breaks, the worst first; nothing is known of those that are not sorted."""
BREAKING: Final = (NO_END, OPENAI_RAISES)
"""Those that keep a response from a client."""
UNENDED_STREAM: Final = "without a terminal event"
"""Finds the symptom of a stream without a terminal event."""
RAISES: Final = "openai:"
"""Begins the symptom that the `openai` package raises."""
OTHERS: Final = Fault("others", "", "")
FAULTS: Final = (
    Fault(
        "When a call of a function is done, it has two fields of the event, `output_index` and `sequence_number`; in the last "
        "event, it has neither.",
        r"function_call .*'(output_index|sequence_number)'",
        NOTHING_TRIED,
        (Place(_EVENTS, "emit_function_call_done_events", "function_call_item = "),),
        ("pull/37071",),
        "a function call",
    ),
    Fault(
        "A call that is cut is only in the stream; not streamed, it is a text.",
        r'^R19: `output` is `\[.*"function_call"\]`, but `\[.*"message"\]`',
        WRONG_WHOLE,
        (Place("vllm/tool_parsers/hermes_tool_parser.py", "extract_tool_calls", "except Exception"),),
        ("issues/47903",),
        "cut in arguments (hermes)",
    ),
    Fault(
        "A `<think>` that comes in one step with other tokens is part of the reasoning in the stream.",
        r'^R19: `output\[\d+\].* is `"<think>',
        WRONG_STREAM,
        (Place("vllm/reasoning/basic_parsers.py", "extract_reasoning_streaming", "elif self.start_token_id in delta_token_ids"),),
        ("issues/55195", "pull/55210"),
        "reasoning, text and two calls (deepseek_v32)",
    ),
    Fault(
        "What comes in one step with the end of the reasoning is not in the stream.",
        r'^R19: `output` is `\["reasoning"(?:, "function_call")?\]`, but `\["reasoning", (?:"message", )?"function_call"',
        WRONG_STREAM,
    ),
    Fault(
        "Text that comes in one step with the beginning of a call is not in the stream.",
        r'^R19: `output` is .*; the text is `"(.*?)(?: |\\n)*"` instead of `"\1[^<]+"`',
        WRONG_STREAM,
        (
            Place(
                "vllm/tool_parsers/deepseekv3_tool_parser.py",
                "extract_tool_calls_streaming",
                "tool_call_portion = current_text.split(self.tool_call_start_token)[",
            ),
        ),
        turn="reasoning, text and two calls (deepseek_v3)",
    ),
    Fault(
        "White space beside a call or around a text is only in the stream, as an item or as part of the text.",
        r'^R19: `output` is `\[(.*)"message", ("function_call".*)\]`, but `\[\1\2\]`|'
        r'^R19: `output\[\d+\].* is `"(?:\\n)*(.*?)(?:\\n)*"`, but `"\3"`',
        NOTHING_TRIED,
        (
            Place("vllm/parser/abstract_parser.py", "_extract_tool_calls", 'content.strip() == ""'),
            Place("vllm/parser/engine/parser_engine.py", "_strip_content_whitespace", "content.strip()"),
        ),
        ("issues/49412", "pull/49426", "pull/57137"),
        "reasoning and a function call (parsers)",
    ),
    Fault(
        "Text after a call is only in the stream.",
        r'^R19: `output` is `\[.*"message"\]`, but',
        WRONG_WHOLE,
        (Place("vllm/tool_parsers/deepseekv3_tool_parser.py", "extract_tool_calls", "content = model_output["),),
        ("issues/56263", "pull/56265"),
        "text after a call (deepseek_v3)",
    ),
    Fault(
        "Text after a call is part of its arguments in the stream.",
        r'^R19: `output\[\d+\]\.arguments` is `"(.*\})[^}]+"`, but `"\1"`',
        WRONG_STREAM,
        turn="text after a call (mistral)",
    ),
    Fault(
        "The last event is `response.completed`, and its response is `incomplete`. Once fixed, `get_final_response` of Python's "
        "`openai` raises for such a response, as for OpenAI's own: a client reads the last event instead.",
        r"^R3: .* the response has the status 'incomplete'",
        NOTHING_TRIED,
        (Place(_SERVING, "responses_stream_generator", "ResponseCompletedEvent("),),
        ("pull/45386",),
        "cut in arguments",
    ),
    Fault(
        "A tool's call is sent as an `mcp_call`, which completes without an output; then a web search takes its index.",
        r"^R11: mcp_call |^R7: web_search_call .* already belongs to mcp_|^openai: Duplicate response output index",
        OPENAI_RAISES,
        (
            Place(_EVENTS, "emit_content_delta_events", "emit_mcp_delta_events("),
            Place(_EVENTS, "emit_mcp_completion_events", 'status="completed"'),
            Place(_EVENTS, "emit_browser_tool_events", "output_index="),
        ),
        ("issues/52443", "pull/52444"),
        "a search",
    ),
    Fault(
        "A message in no channel, or an unknown one, ends the stream without a terminal event, so there is no response.",
        rf"{UNENDED_STREAM}.*Error: Unknown channel",
        NO_END,
        (Place(_HARMONY, "_parse_message_no_recipient", "Unknown channel"),),
        ("pull/49308", "pull/38190"),
        "no channel",
    ),
    Fault(
        "If the engine fails, the event about its error is no valid event, and the stream ends without a terminal event.",
        rf"{UNENDED_STREAM}.*; ValidationError: .* errors for",
        NO_END,
        (Place(_SERVING, "responses_stream_generator", "validate_json(error_json)"),),
        ("pull/40418", "pull/38190"),
        "an engine that gives up: its grammar allows one call (parsers)",
    ),
    Fault(
        "A search whose arguments are not JSON ends the stream without a terminal event.",
        rf"{UNENDED_STREAM}.*; JSONDecodeError",
        NO_END,
        (Place(_EVENTS, "emit_browser_tool_events", "json.loads"),),
        ("pull/27674",),
        "a search whose arguments are no JSON",
    ),
    Fault(
        "Code that prints nothing ends the stream without a terminal event, because the tool's result has no content.",
        rf"{UNENDED_STREAM}.*; IndexError",
        NO_END,
        (Place("vllm/entrypoints/openai/responses/context.py", "HarmonyContext.call_python_tool", "result.content[0].text"),),
        turn="python that says nothing",
    ),
    Fault(
        "A call whose name the parser does not find ends the stream without a terminal event.",
        rf"{UNENDED_STREAM}.*; ValidationError: 1 validation error for ResponseFunctionToolCallItem name",
        NO_END,
        (Place(_EVENTS, "emit_simple_tool_call_open", "item = ResponseFunctionToolCallItem("),),
        turn="no tools (mistral)",
    ),
    Fault("The stream ends without a terminal event.", UNENDED_STREAM, NO_END),
    Fault(
        "The last event has an item that was never sent, or lacks one that was.",
        r"^R6: |^R13: .* the response has \d+ items?|^R13: message .*'id'",
        WRONG_LAST_EVENT,
        (
            Place(_EVENTS, "emit_previous_item_done_events", "if not state.sent_output_item_added"),
            Place(_HARMONY, "harmony_to_response_output", 'message.author.role != "assistant"'),
        ),
        ("issues/48274", "pull/48282", "pull/58018"),
        "empty reasoning",
    ),
    Fault(
        "An item is `completed` when it is done, and `incomplete` in the last event.",
        r"^R13: .*: 'status'$",
        NOTHING_TRIED,
        (
            Place(_EVENTS, "emit_text_output_done_events", 'status="completed"'),
            Place(_HARMONY, "_parse_final_message", '"incomplete" if incomplete'),
        ),
        ("issues/57998", "pull/58018"),
        "cut in an answer",
    ),
    Fault(
        "A call of the code interpreter is reasoning in the last event.",
        r"^R13: code_interpreter_call .*'summary'",
        WRONG_LAST_EVENT,
        (Place(_HARMONY, "harmony_to_response_output", "_parse_reasoning("),),
        turn="python",
    ),
    Fault(
        "The query of a web search begins with `cursor:` in the last event, and not before.",
        r"^R13: web_search_call .*'action'",
        WRONG_LAST_EVENT,
        (
            Place(_EVENTS, "emit_browser_tool_events", 'query=parsed_args["query"]'),
            Place(_HARMONY, "_parse_browser_tool_call", "query=f"),
        ),
        turn="a search",
    ),
    Fault(
        "The log probabilities of deltas are not in `response.output_text.done`; not streamed, a text has the reasoning's too.",
        r"^R15: |^R19: `output\[\d+\].*\.logprobs`",
        NOTHING_TRIED,
        (
            Place(_EVENTS, "emit_simple_content_done", "logprobs=[],"),
            Place(_SERVING, "_make_response_output_items", "token_ids=final_output.token_ids"),
        ),
        ("pull/57326",),
        "log probabilities (parsers)",
    ),
)
"""The first whose pattern is found in a symptom is its fault."""


def symptoms(stream: bytes, whole: str = "") -> Iterator[tuple[str, int]]:
    """Yield the errors of a stream, each with its number: the rule, the kind of item and the message, or what `openai` raises.

    `whole` is the sentence of R19, if the whole answer is another one.
    """
    judge = AnyJudge(api="responses")
    judge.content_type("text/event-stream")
    judge.feed(stream)
    for finding, times in judge.end().findings.items():
        if finding.severity == "error":
            yield f"{finding.rule}: {finding.kind} {finding.message}", times
    if whole:
        yield whole, 1
    if raised := _raised(stream):
        yield f"{RAISES} {raised}", 1


def _raised(stream: bytes) -> str:
    """Return what the `openai` package raises as it reads the events of a stream; empty if it does not."""
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: answer)) as http,
        openai.OpenAI(api_key="none", base_url="http://localhost/v1", http_client=http, max_retries=0) as client,
    ):
        try:
            with client.responses.stream(model="m", input="") as events:
                for _ in events:
                    pass
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, openai.OpenAIError) as error:
            return str(error) or type(error).__name__
    return ""


def fault_of(symptom: str) -> Fault:
    """Return the fault of a symptom."""
    return next((each for each in FAULTS if re.search(each.pattern, symptom)), OTHERS)


def count_faults(turns_symptoms: Iterable[Iterable[tuple[str, int]]]) -> dict[Fault, Counts]:
    """Count the faults of turns by their symptoms; the worst first, and of these the one of most turns."""
    errors: dict[Fault, Counter[str]] = {}
    turns, raises = Counter[Fault](), Counter[Fault]()
    for found in turns_symptoms:
        seen = set[Fault]()
        for symptom, times in found:
            fault = fault_of(symptom)
            if symptom.startswith(RAISES):
                raises[fault] += 1
            else:
                errors.setdefault(fault, Counter())[symptom.partition(":")[0]] += times
                seen.add(fault)
        turns.update(seen)
    faults = sorted({*errors, *raises}, key=lambda fault: (HARMS.index(fault.harm), -turns[fault], fault.says))
    return {fault: Counts(errors.get(fault, Counter()), turns[fault], raises[fault]) for fault in faults}
