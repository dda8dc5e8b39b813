"""Streams of Chat Completions as servers document them, each with its expected items."""

from attrs import frozen


@frozen
class Shape:
    """The chunks of one turn, its items (kind, text or arguments, name), usage (input, cached, output, reasoning)
    or None, and status."""

    chunks: list
    items: list
    usage: tuple | None = None
    done: bool = True
    status: str = "completed"


def chunk(delta=None, finish_reason=None, usage=None, **choice):
    """A chunk with one choice; only with `usage` it has none."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason, **choice}]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return {**base, "usage": usage} if usage else base


def call(index, arguments="", name=None, call_id=None, **more):
    """A delta with a fragment of a call, with the fields that OpenAI sends."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    first = {"id": call_id, "type": "function"} if call_id else {}
    return {"tool_calls": [{"index": index, **first, "function": function}], **more}


WEATHER = '{"city":"Berlin"}'
TIME = '{"zone":"UTC"}'

SHAPES = {
    "openai: text": Shape(
        [
            chunk({"role": "assistant", "content": "", "refusal": None}, logprobs=None),
            chunk({"content": "It "}, logprobs=None),
            chunk({"content": "rains."}, logprobs=None),
            chunk({}, "stop", logprobs=None),
            chunk(
                usage={
                    "prompt_tokens": 20,
                    "completion_tokens": 9,
                    "total_tokens": 29,
                    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 0},
                }
            ),
        ],
        [("message", "It rains.", None)],
        (20, 16, 9, 4),
    ),
    "openai: two calls at once": Shape(
        [
            chunk({"role": "assistant", "content": None, **call(0, "", "get_weather", "call_a")}),
            chunk(call(0, '{"city":')),
            chunk(call(0, '"Berlin"}')),
            chunk(call(1, "", "get_time", "call_b")),
            chunk(call(1, TIME)),
            chunk({}, "tool_calls"),
        ],
        [("function_call", WEATHER, "get_weather"), ("function_call", TIME, "get_time")],
    ),
    "openai: refusal": Shape(
        [
            chunk({"role": "assistant", "content": None, "refusal": ""}),
            chunk({"refusal": "I'm sorry, "}),
            chunk({"refusal": "no."}),
            chunk({}, "stop"),
        ],
        [("message", "I'm sorry, no.", None)],
    ),
    "openai: the old function_call": Shape(
        [
            chunk({"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"city":'}}),
            chunk({"function_call": {"arguments": '"Berlin"}'}}),
            chunk({}, "function_call"),
        ],
        [("function_call", WEATHER, "get_weather")],
    ),
    "azure: filters in a chunk without choices": Shape(
        [
            {**chunk(), "prompt_filter_results": [{"prompt_index": 0}]},
            chunk({"role": "assistant", "content": "Yes."}, content_filter_results={}),
            chunk({}, "stop"),
        ],
        [("message", "Yes.", None)],
    ),
    "deepseek: reasoning_content, cache hits and comments": Shape(
        [
            chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
            chunk({"content": None, "reasoning_content": "Let me "}),
            chunk({"content": None, "reasoning_content": "look."}),
            chunk({"content": "", "reasoning_content": None, **call(0, "", "get_weather", "call_0_x")}),
            chunk(call(0, WEATHER)),
            chunk(
                {"content": "", "reasoning_content": None},
                "tool_calls",
                usage={
                    "prompt_tokens": 11,
                    "completion_tokens": 30,
                    "prompt_cache_hit_tokens": 8,
                    "prompt_cache_miss_tokens": 3,
                    "completion_tokens_details": {"reasoning_tokens": 12},
                },
            ),
        ],
        [("reasoning", "Let me look.", None), ("function_call", WEATHER, "get_weather")],
        (11, 8, 30, 12),
    ),
    "mistral: reasoning as a part, a call in one piece without an index": Shape(
        [
            chunk({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}),
            chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m."}]}]}),
            chunk({"content": [{"type": "text", "text": "I look."}]}),
            chunk(
                {
                    "content": "",
                    "tool_calls": [{"id": "Ab3dE6gH9", "function": {"name": "get_weather", "arguments": WEATHER}, "index": 0}],
                },
                "tool_calls",
                usage={"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
            ),
        ],
        [("reasoning", "Hmm.", None), ("message", "I look.", None), ("function_call", WEATHER, "get_weather")],
        (5, 0, 7, 0),
    ),
    "ollama: calls in one piece, all with the index 0": Shape(
        [
            chunk({"role": "assistant", "content": "", "reasoning": "Two "}),
            chunk({"role": "assistant", "content": "", "reasoning": "calls."}),
            chunk({"role": "assistant", "content": "", **call(0, WEATHER, "get_weather", "call_1")}),
            chunk({"role": "assistant", "content": "", **call(0, TIME, "get_time", "call_2")}),
            chunk({"role": "assistant", "content": ""}, "tool_calls"),
        ],
        [("reasoning", "Two calls.", None), ("function_call", WEATHER, "get_weather"), ("function_call", TIME, "get_time")],
    ),
    "sglang: nulls everywhere, and matched_stop": Shape(
        [
            chunk({"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None}, matched_stop=None),
            chunk({"role": None, "content": None, "reasoning_content": "Hm.", "tool_calls": None}, matched_stop=None),
            chunk({"role": None, "content": "Yes.", "reasoning_content": None, "tool_calls": None}, matched_stop=None),
            chunk({"role": None, "content": None, "reasoning_content": None, "tool_calls": None}, "stop", matched_stop=151645),
            chunk(usage={"prompt_tokens": 9, "total_tokens": 14, "completion_tokens": 5, "prompt_tokens_details": None}),
        ],
        [("reasoning", "Hm.", None), ("message", "Yes.", None)],
        (9, 0, 5, 0),
    ),
    "lm studio: the id late and the name again": Shape(
        [
            chunk({"role": "assistant", **call(0, "", "get_weather")}),
            chunk(call(0, '{"city":', "get_weather", "365174485")),
            chunk(call(0, '"Berlin"}', None, "365174485")),
            chunk({}, "tool_calls"),
        ],
        [("function_call", WEATHER, "get_weather")],
    ),
    "llama.cpp: the name in pieces, timings, and usage beside the last delta": Shape(
        [
            chunk({"role": "assistant", "content": None}),
            chunk(call(0, "", "get_", "abc")),
            chunk(call(0, "", "weather")),
            chunk(call(0, WEATHER)),
            {**chunk({}, "tool_calls", usage={"completion_tokens": 4, "prompt_tokens": 6}), "timings": {"predicted_n": 4}},
        ],
        [("function_call", WEATHER, "get_weather")],
        (6, 0, 4, 0),
    ),
    "vllm: both names of reasoning, cut by the budget": Shape(
        [
            chunk({"role": "assistant", "content": ""}, token_ids=None, prompt_token_ids=None),
            chunk({"reasoning": "Hm", "reasoning_content": "Hm"}),
            chunk({"content": "Ye"}, stop_reason=None),
            chunk({"content": "s"}, "length", stop_reason=None),
            chunk(usage={"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}),
        ],
        [("reasoning", "Hm", None), ("message", "Yes", None)],
        (3, 0, 3, 0),
        status="incomplete",
    ),
    "empty content, a refusal and both forms of calls in one chunk": Shape(
        [
            chunk({"role": "assistant", "content": "", "refusal": "No, "}),
            chunk(
                {
                    "content": "",
                    "refusal": "but look.",
                    "function_call": {"name": "get_time", "arguments": TIME},
                    **call(0, WEATHER, "get_weather", "call_1"),
                }
            ),
            chunk({}, "tool_calls"),
        ],
        [("message", "No, but look.", None), ("function_call", WEATHER, "get_weather"), ("function_call", TIME, "get_time")],
    ),
    "a server that does not stream": Shape(
        [{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}],
        [("message", "Yes.", None)],
    ),
    "no end marker, and an unknown finish reason": Shape(
        [chunk({"role": "assistant", "content": "Yes."}), chunk({}, "eos")], [("message", "Yes.", None)], done=False
    ),
    "azure: results of a content filter in choices without a delta, before and after the end": Shape(
        [
            chunk({"role": "assistant", "content": "Yes."}),
            {"choices": [{"index": 0, "content_filter_offsets": {"start_offset": 4}, "content_filter_results": {}}]},
            chunk({}, "stop"),
            {"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}]},
        ],
        [("message", "Yes.", None)],
    ),
    "snowflake: reasoning as details, usage and the end marker, but no finish reason": Shape(
        [
            chunk({"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}),
            chunk({"reasoning_details": [{"type": "reasoning.text", "text": "m.", "signature": "x"}]}),
            chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}], "content": "Yes."}),
            chunk(usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
        ],
        [("reasoning", "Hmm.", None), ("message", "Yes.", None)],
        (3, 0, 4, 0),
    ),
    "openrouter: a whole call, usage and the end marker, but no finish reason": Shape(
        [chunk(call(0, WEATHER, "get_weather", "call_1")), chunk(usage={"prompt_tokens": 3, "completion_tokens": 4})],
        [("function_call", WEATHER, "get_weather")],
        (3, 0, 4, 0),
    ),
    "openrouter: the same reasoning in two fields": Shape(
        [
            chunk({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.summary", "summary": "Hm.", "index": 0}]}),
            chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": " So.", "index": 0}], "reasoning": None}),
            chunk({"content": "Yes."}, "stop"),
        ],
        [("reasoning", "Hm. So.", None), ("message", "Yes.", None)],
    ),
    "databricks: reasoning as parts of the content": Shape(
        [
            chunk({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm", "signature": ""}]}]}),
            chunk({"content": [{"type": "reasoning", "text": "m."}, {"type": "text", "text": "Yes."}]}),
            chunk({}, "stop"),
        ],
        [("reasoning", "Hmm.", None), ("message", "Yes.", None)],
    ),
    "an empty finish reason in every chunk": Shape(
        [chunk({"role": "assistant", "content": "Ye"}, ""), chunk({"content": "s."}, ""), chunk({}, "STOP")],
        [("message", "Yes.", None)],
    ),
    "fields that nobody has asked for, of other types": Shape(
        [
            chunk({"content": "Y"}, logprobs=-0.0000017),
            chunk({"content": "e"}, logprobs={"content": [{"token": "e", "bytes": [-1, "x"], "logprob": 10**30}]}),
            {**chunk({"content": "s"}, logprobs=[1]), "object": 7, "usage": [1]},
            {**chunk(call("0", WEATHER, "get_weather", 7)), "usage": "none"},
            chunk({}, "stop", usage={"prompt_tokens": 10**30, "completion_tokens": 4, "prompt_tokens_details": [1]}),
        ],
        [("message", "Yes", None), ("function_call", WEATHER, "get_weather")],
        (0, 0, 4, 0),
    ),
    "several choices, in chunks of their own or in one": Shape(
        [
            chunk({"content": "Ye"}),
            chunk({"content": "No"}, index=1),
            {"choices": [{"index": 1, "delta": {"content": "!"}}, {"index": 0, "delta": {"content": "s."}}]},
            chunk({}, "length", index=1),
            chunk({}, "stop"),
        ],
        [("message", "Yes.", None)],
    ),
    "two calls without ids, both with the index 0, whose names come first": Shape(
        [
            chunk(call(0, "", "get_weather")),
            chunk(call(0, '{"city":')),
            chunk(call(0, '"Berlin"}')),
            chunk(call(0, "", "get_time")),
            chunk(call(0, TIME)),
            chunk(call(0, "", "get_time")),
            chunk(call(0, TIME)),
            chunk({}, "tool_calls"),
        ],
        [("function_call", WEATHER, "get_weather"), ("function_call", TIME, "get_time"), ("function_call", TIME, "get_time")],
    ),
    "two calls without ids and arguments, both with the index 0": Shape(
        [chunk(call(0, "", "get_weather")), chunk(call(0, "", "get_time")), chunk({}, "tool_calls")],
        [("function_call", "{}", "get_weather"), ("function_call", "{}", "get_time")],
    ),
    "a character whose halves are in two chunks": Shape(
        [chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"}), chunk({"content": "\ude00\\ud83d"}), chunk({}, "stop")],
        [("message", "a\U0001f600b\ufffd\\ud83d", None)],
    ),
    "arguments as an object": Shape(
        [chunk({"tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Berlin"}}}]}), chunk({}, "stop")],
        [("function_call", WEATHER, "get_weather")],
    ),
}
