"""The defaults of engines: messages for chat templates, tokens for gpt-oss, truncation, and estimates of prompts."""

import asyncio
import base64
import re
import struct

import httpx
import pytest
from for_each import for_each
from live.engines import ENCODING

from interlock.parsers import Chunk, Tagged
from interlock.serving.engines.engine import Engine, EngineOutput, Generation, ModelFacts, Turn, explain_output, fitting
from interlock.serving.engines.harmony_tokens import tool_messages, turn_messages
from interlock.serving.engines.prompt import MAX_PATCHES, _without_media, estimate, image_size
from interlock.serving.engines.script import ScriptedEngine, ScriptRule, ScriptStep
from interlock.serving.requests.api_errors import ApiError, PromptError, invalid, no_such_model
from interlock.serving.requests.create import read_request
from interlock.testing import assert_legal


class Least(Engine):
    """An engine with only the required members."""

    models = ("least",)
    format = "text"

    async def generate(self, turn):
        del turn
        yield EngineOutput(Chunk(text="Hi"), "stop")


def turn_of(text="Hello"):
    request = read_request({"model": "least", "input": text})
    return Turn(request, request.input)


CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
RAIN = {"type": "function", "name": "rain", "parameters": CITY, "strict": True}
DICE = {"name": "roll", "input_schema": {"type": "object"}}
TALK = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "Does it rain?"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "I should look."}]},
    {"type": "function_call", "call_id": "call_functions.rain:0", "name": "rain", "arguments": '{"city":"Rome"}'},
    {"type": "function_call_output", "call_id": "call_functions.rain:0", "output": "no"},
    {"type": "function_call", "call_id": "call_1", "name": "rain", "arguments": '{"city'},
    {"type": "function_call_output", "call_id": "call_1", "output": "What?"},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": [{"type": "logs", "logs": "1"}]},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "dice", "tools": [DICE]},
]


def talk(**settings):
    request = read_request({"model": "least", "instructions": "Speak.", "input": TALK, **settings})
    return Turn(request, request.input)


def expected_messages(call_id):
    def call(id, name, arguments):  # noqa: A002 - the name of the field
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    thought = {"reasoning": "I should look.", "reasoning_content": "I should look."}
    return [
        {"role": "system", "content": "Speak.\n\nBe brief."},
        {"role": "user", "content": "Does it rain?"},
        {"role": "assistant", "content": "", "tool_calls": [call(call_id, "rain", {"city": "Rome"})], **thought},
        {"role": "tool", "tool_call_id": call_id, "content": "no"},
        {"role": "assistant", "content": "", "tool_calls": [call("call_1", "rain", {"arguments": '{"city'})]},
        {"role": "tool", "tool_call_id": "call_1", "content": "What?"},
        {"role": "assistant", "content": "", "tool_calls": [call("EKEELRKYJ", "python", {"code": "1"})]},
        {"role": "tool", "tool_call_id": "EKEELRKYJ", "content": "1"},
    ]


def test_a_chat_template_gets_call_arguments_as_objects() -> None:
    assert talk().messages() == expected_messages("call_functions.rain:0")


def test_a_chat_template_of_a_family_gets_the_ids_that_the_model_wrote() -> None:
    assert talk().messages(Tagged("kimi_k2")) == expected_messages("functions.rain:0")


def test_a_chat_template_gets_tools_as_functions() -> None:
    search = {"type": "web_search", "search_context_size": "low"}
    server = {"type": "mcp", "server_label": "dice", "server_url": "https://dice.example"}
    space = {"type": "namespace", "name": "space", "description": "Space.", "tools": [RAIN]}
    turn = talk(tools=[RAIN, search, server, space])
    rain = {"type": "function", "function": {"name": "rain", "parameters": CITY, "strict": True}}
    roll = {"type": "function", "function": {"name": "dice__roll", "parameters": {"type": "object"}}}
    far = {"type": "function", "function": {"name": "space__rain", "parameters": CITY, "strict": True}}
    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    web = {"type": "function", "function": {"name": "web_search", "description": "Looks it up.", "parameters": query}}
    assert turn.functions() == [rain, roll, far]
    assert turn.functions({"web_search": "Looks it up."}) == [rain, web, roll, far]


def test_a_chat_template_gets_the_functions_that_the_choice_allows() -> None:
    other = {**RAIN, "name": "snow"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "snow"}]}
    names = [
        [tool["function"]["name"] for tool in talk(tools=[RAIN, other], tool_choice=choice).functions()]
        for choice in ("auto", "none", allowed)
    ]
    assert names == [["rain", "snow"], [], ["snow"]]


def test_gpt_oss_gets_a_prompt_of_tokens() -> None:
    turn = talk(tools=[RAIN, {"type": "code_interpreter", "container": {"type": "auto"}}])
    text = ENCODING.decode(asyncio.run(turn.harmony_tokens({"code_interpreter": "Runs code."})))
    head, developer, *rest = text.split("<|start|>")[1:]
    assert "## python\n\nRuns code." in head
    assert developer.startswith("developer<|message|># Instructions\n\nSpeak.")
    assert "type rain = (_: {\ncity?: string,\n}) => any;" in developer
    assert rest == [
        "developer<|message|># Instructions\n\nBe brief.<|end|>",
        "user<|message|>Does it rain?<|end|>",
        "assistant<|channel|>analysis<|message|>I should look.<|end|>",
        'assistant to=functions.rain<|channel|>commentary json<|message|>{"city":"Rome"}<|call|>',
        "functions.rain to=assistant<|channel|>commentary<|message|>no<|end|>",
        'assistant to=functions.rain<|channel|>commentary json<|message|>{"city<|call|>',
        "functions.rain to=assistant<|channel|>commentary<|message|>What?<|end|>",
        'assistant to=python<|channel|>analysis code<|message|>{"code":"1"}<|call|>',
        "python to=assistant<|channel|>analysis<|message|>1<|end|>",
        "assistant",
    ]


def test_an_engine_must_generate() -> None:
    with pytest.raises(TypeError, match="generate"):
        Engine()


def test_an_engine_has_defaults_for_the_rest() -> None:
    engine = Least()

    async def asked():
        generation = await engine.begin(turn_of().request, turn_of().items)
        await generation.admit(turn_of())
        outputs = [output async for output in await generation.start(turn_of())]
        return await engine.names(), await engine.has_tools("least"), await generation.prepare(turn_of()), outputs

    assert asyncio.run(asked()) == (("least",), False, {}, [EngineOutput(Chunk(text="Hi"), "stop")])
    assert (engine.facts("least"), engine.passes_keys, engine.has_faults) == (ModelFacts(), False, False)
    assert (engine.model_label("least"), engine.model_label("secret")) == ("least", "other")


@pytest.mark.parametrize("stream", [False, True])
def test_the_count_of_the_engine_replaces_prompt_tokens_that_its_outputs_lack(serve, stream) -> None:
    class Counting(Least):
        async def count(self, turn):
            return 7 * len(turn.items)

    message = [{"role": "user", "content": "Hello"}]
    bodies = {
        "responses": {"input": message},
        "chat/completions": {"messages": message, **({"stream_options": {"include_usage": True}} if stream else {})},
        "messages": {"messages": message, "max_tokens": 16},
    }
    with serve(Counting()) as url:
        answers = [
            httpx.post(f"{url}/v1/{path}", json={"model": "least", "stream": stream, **body}) for path, body in bodies.items()
        ]
    counts = [re.findall(r'"(?:input|prompt)_tokens": ?(\d+)', answer.text) for answer in answers]
    assert counts == [["7"], ["7"], ["7", "7"] if stream else ["7"]]


@pytest.mark.parametrize(("count", "problem"), [(-1, "Expected `int` >= 0"), ("7", "Expected `int`, got `str`")])
def test_a_wrong_count_of_an_engine_is_named_and_replaced_by_an_estimate(serve, caplog, count, problem) -> None:
    class Counting(Least):
        async def count(self, turn):
            del turn
            return count

    body = {"model": "least", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with serve(Counting()) as url:
        answer = httpx.post(f"{url}/v1/messages", json=body)
        refusal = httpx.post(f"{url}/v1/messages/count_tokens", json=body)
    assert_legal(answer.content, strict=True)
    assert refusal.status_code == 500
    errors = {str(record.exc_info[1]) for record in caplog.records if record.exc_info}
    assert errors == {f"'count' of Counting returned {count!r}, and not int: {problem}"}


def test_an_engine_refuses_models_that_it_lacks() -> None:
    with pytest.raises(ApiError, match="The model 'other' does not exist"):
        Least().read({"model": "other", "input": "Hi"})


def test_the_tokens_of_a_prompt_are_estimated_by_its_length() -> None:
    short, long = (asyncio.run(Least().count(turn_of(text))) for text in ("x", "x" * 401))
    assert long - short == 100


def test_an_engine_generates_a_turn_that_belongs_to_no_response() -> None:
    async def generated():
        engine = ScriptedEngine([ScriptRule(steps=[ScriptStep(says="Hi there")])])
        return [output async for output in engine.generate(turn_of())]

    outputs = asyncio.run(generated())
    assert [output.chunk.delta for output in outputs] == [{"content": "Hi"}, {"content": " there"}]
    assert [output.finish_reason for output in outputs] == [None, "stop"]


# With `truncation: auto`, the oldest turns are dropped if the prompt is too long, and for no other reason


class Narrow:
    """An engine that refuses prompts of more than one item with an error."""

    def __init__(self, error):
        self.error = error

    async def count(self, turn):
        if len(turn.items) > 1:
            raise self.error
        return 1


def fitted(error):
    """The number of items that remain of three."""
    items = [{"role": "user", "content": f"{number}"} for number in range(3)]
    request = read_request({"model": "m", "input": items, "truncation": "auto"})
    turn = Turn(request, request.input, None)
    return len(asyncio.run(fitting(Generation(Narrow(error), None), turn)).items)


@pytest.mark.parametrize(
    "error",
    [
        PromptError("It is too long."),
        invalid("input", "It does not fit.", "context_length_exceeded"),
        ApiError(400, "The engine prompt length 9 exceeds the max_model_len 8. Please reduce prompt.", param="input"),
        invalid("input_tokens", "This model's maximum context length is 8 tokens."),
        ApiError(400, "the request exceeds the available context size", "exceed_context_size_error"),
    ],
)
def test_the_oldest_turns_of_a_prompt_that_is_too_long_are_dropped(error):
    assert fitted(error) == 1


@pytest.mark.parametrize(
    "error",
    [
        invalid("input", "An image cannot be sent to this model.", "unsupported_value"),
        invalid("input", "At most 0 image(s) may be provided in one prompt."),
        no_such_model("m"),
        ApiError(502, "The upstream server cannot be reached.", "server_error", code="upstream_unreachable"),
    ],
)
def test_no_turn_is_dropped_for_another_reason(error):
    assert fitted(error) == 3


# The messages in the tokens of a gpt-oss turn, and the messages with the outputs of its tools


RUN = "<|channel|>analysis to=python code<|message|>1<|call|>"
CALL = "<|channel|>commentary to=functions.rail__trains <|constrain|>json<|message|>{}<|call|>"
CODE = {"type": "code_interpreter_call", "output": "1\n"}
SEARCH = {"type": "web_search_call", "output": "a page"}
MCP = {"type": "mcp_call", "server_label": "rail", "name": "trains", "output": "10:15"}


def tokens(text):
    return ENCODING.encode(text, allowed_special="all")


def replies(text, *items):
    messages = tool_messages(tokens(text), [{"type": "reasoning"}, *items])
    return [(each.author.name, each.channel, each.recipient, each.content[0].text) for each in messages]


@pytest.mark.parametrize(
    ("text", "item", "name", "channel"),
    [
        (RUN, CODE, "python", "analysis"),
        (CALL, MCP, "functions.rail__trains", "commentary"),
        (RUN.replace("analysis", "commentary"), CODE, "python", "commentary"),
    ],
)
def test_a_tool_answers_under_the_name_and_in_the_channel_of_its_call(text, item, name, channel) -> None:
    assert replies(text, item) == [(name, channel, "assistant", item["output"])]


def test_a_tool_answers_under_its_usual_name_if_calls_and_items_differ() -> None:
    malformed = "<|channel|><|channel|>Hi<|call|>"
    assert replies(malformed, CODE, SEARCH, MCP) == [
        ("python", "analysis", "assistant", "1\n"),
        ("browser.search", "analysis", "assistant", "a page"),
        ("functions.rail__trains", "commentary", "assistant", "10:15"),
    ]


def test_no_tool_answers_if_a_call_of_an_async_tool_is_pending() -> None:
    assert replies(RUN, CODE, {"type": "function_call_output", "output": "later"}) == []


def test_a_malformed_turn_is_one_message_with_all_of_its_text() -> None:
    (message,) = turn_messages(tokens("<|channel|><|channel|>Hi<|call|>"))
    assert (message.channel, message.content[0].text) == ("final", "Hi")


# Media count by what models read of them, and not by the bytes of their base64


def png(width, height, rest=b""):
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + rest


GIF = b"GIF89a" + struct.pack("<HH", 320, 200)
JPEG = b"\xff\xd8\xff\xe1\x00\x06Exif\xff\xc0\x00\x11\x08" + struct.pack(">HH", 480, 640)
WEBP = {
    b"VP8X": bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little"),
    b"VP8L": bytes(4) + b"\x2f" + struct.pack("<I", 99 | 49 << 14),
    b"VP8 ": bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 100, 50),
}


def encoded(data):
    return base64.b64encode(data).decode()


def image(data):
    return {"type": "input_image", "image_url": f"data:image/png;base64,{encoded(data)}"}


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (png(640, 480), (640, 480)),
        (GIF, (320, 200)),
        (JPEG, (640, 480)),
        *((b"RIFF\0\0\0\0WEBP" + kind + rest, (100, 50)) for kind, rest in WEBP.items()),
        (b"RIFF\0\0\0\0WEBPVP9 ", None),
        (png(640, 480)[:20], None),
        (JPEG[:12], None),
        (b"\xff\xd8\x00", None),
        (b"text", None),
        (b"", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_beginning(head, size) -> None:
    assert image_size(head) == size


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (image(png(640, 480)), 20 * 15),
        (image(png(640, 480, bytes(1_000_000))), 20 * 15),
        (image(png(1, 1)), 1),
        (image(png(10_000, 10_000)), MAX_PATCHES),
        (image(png(0, 9)), MAX_PATCHES),
        ({"type": "input_image", "image_url": "data:image/png;base64,%%%ä"}, MAX_PATCHES),
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, MAX_PATCHES),
        ({"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{encoded(GIF)}"}}, 10 * 7),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, MAX_PATCHES),
        ({"type": "image_generation_call", "result": encoded(png(64, 64))}, 4),
        ({"type": "input_file", "filename": "a.txt", "file_data": encoded(b"a" * 400)}, 101),
        ({"type": "input_file", "file_data": f"data:text/plain;base64,{encoded(b'a' * 400)}"}, 101),
        ({"type": "file", "file": {"filename": "a.pdf", "file_data": encoded(bytes(6_400))}}, 101),
        ({"type": "input_audio", "input_audio": {"data": encoded(bytes(48_000)), "format": "wav"}}, 10),
        ({"type": "input_audio", "input_audio": {"data": encoded(bytes(48_000)), "format": "mp3"}}, 30),
        ({"type": "function_call_output", "output": [image(png(640, 480))]}, 20 * 15),
        ({"type": "function_call_output", "result": "text", "data": "text", "url": "https://example.org"}, 0),
        ({"type": "input_text", "text": "data:image/png;base64, is how it begins"}, 0),
        ({"type": "function_call_output", "output": f"data:image/png;base64,{encoded(GIF)}"}, 0),
        ({"type": "input_file", "file_url": f"data:text/plain;base64,{encoded(b'a' * 400)}"}, 100),
        ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, 0),
    ],
)
def test_media_count_their_estimated_tokens(part, tokens) -> None:
    media = []
    _without_media([{"content": [part]}], media)
    assert sum(media) == pytest.approx(tokens, abs=1)


def test_an_estimate_counts_media_beside_the_text() -> None:
    part = image(png(640, 480, bytes(1_000_000)))
    assert estimate([part, "a" * 400]) == pytest.approx(300 + 100, abs=20)


SCORED = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -9999.0}]}

TYPED = [
    (EngineOutput(Chunk([1], "a", [SCORED], object()), more=[Chunk()]), None),
    ("a", "'a', and not an EngineOutput, such as EngineOutput(Chunk(text='Hi'), 'stop')"),
    (EngineOutput("a"), "an EngineOutput whose chunk is 'a', and not Chunk: Expected `object`, got `str`"),
    (EngineOutput(Chunk(text=5)), "an EngineOutput whose chunk.text is 5, and not str or None: Expected `str | null`, got `int`"),
    (
        EngineOutput(Chunk(logprobs=[{"token": "a", "logprob": "-1"}])),
        (
            "an EngineOutput whose chunk.logprobs is [{'token': 'a', 'logprob': '-1'}], and not Sequence[TokenLogprob] or None: "
            "Expected `float`, got `str` - at `$[0].logprob`"
        ),
    ),
    (
        EngineOutput(Chunk(), more=[Chunk([""])]),
        "an EngineOutput whose more[0].token_ids is [''], and not Sequence[int]: Expected `int`, got `str` - at `$[0]`",
    ),
    (EngineOutput(Chunk(), more=5), "an EngineOutput whose more is 5, and not Sequence[Chunk]: Expected `array`, got `int`"),
    (
        EngineOutput(Chunk(), output_tokens="3"),
        "an EngineOutput whose output_tokens is '3', and not int: Expected `int`, got `str`",
    ),
    (
        EngineOutput(Chunk(), "eos"),
        (
            "an EngineOutput whose finish_reason is 'eos', "
            "and not None or one of stop, length, content_filter, abort, error: Invalid enum value 'eos'"
        ),
    ),
]


@for_each(("output", "problem"), TYPED, ids=str)
def test_a_wrong_output_is_explained(output, problem) -> None:
    assert explain_output(output) == problem
