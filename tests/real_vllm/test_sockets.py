"""WebSocket mode and other features for agents on a real engine: the SDK's connection, counting, deletion, compressed bodies."""

import asyncio
import json
from contextlib import contextmanager

import httpx
import openai
import pytest
from backports import zstd
from playing import body, get, is_aborted
from servers import HARMONY
from turns import ANSWER, DONE, END, FUNCTION, THINK, TOOL_CALL, WEATHER, Turn
from websockets.sync.client import connect

HARMONY_SERVER = pytest.mark.parametrize("server", ["harmony"], indirect=True)

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}
CONTEXT = HARMONY.context
ENDLESS = f"{ANSWER}One two three"


def request_body(*rounds, **fields):
    return body("gpt_oss", Turn("", rounds, body=fields))


def options(server):
    return {"base_url": f"{server.url}/v1", "websocket_base_url": f"{server.url.replace('http', 'ws', 1)}/v1", "api_key": "none"}


def split(request):
    """Return the arguments of the SDK for a request; vLLM's own field goes into the extra body."""
    own = {name: value for name, value in request.items() if name != "vllm_xargs"}
    return {**own, "extra_body": {"vllm_xargs": request["vllm_xargs"]}}


def create_frame(request):
    return {"type": "response.create", **request}


@HARMONY_SERVER
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager")  # the SDK does not do that
def test_the_sdk_connects_and_continues_an_unstored_call(server):
    call = request_body(f'{WEATHER}{{"city": "Rome"}}<|call|>', tools=[FUNCTION], store=False)

    def turn(connection, request):
        connection.send(create_frame(request))
        for event in connection:
            if event.type in ENDS:
                return event.response
        raise AssertionError

    with openai.OpenAI(**options(server)) as client, client.responses.connect() as connection:
        first = turn(connection, call)
        answer = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "sunny"}
        request = request_body("", DONE, tools=[FUNCTION], store=False, previous_response_id=first.id, input=[answer])
        second = turn(connection, request)
    assert [item.type for item in (*first.output, *second.output)] == ["function_call", "message"]
    assert second.usage.input_tokens > first.usage.input_tokens


@HARMONY_SERVER
def test_the_asynchronous_sdk_connects(server):
    async def asking():
        async with openai.AsyncOpenAI(**options(server)) as client, client.responses.connect() as connection:
            await connection.send(create_frame(request_body(DONE)))
            return [event async for event in until_the_end(connection)][-1].response.output_text

    async def until_the_end(connection):
        async for event in connection:
            yield event
            if event.type in ENDS:
                return

    assert asyncio.run(asking()) == "It is done."


class Lanes:
    """A WebSocket with lanes, which each run one request at a time."""

    def __init__(self, socket):
        self.socket = socket

    def send(self, request, **fields):
        self.socket.send(json.dumps({**create_frame(request), **fields}))

    def receive(self):
        return json.loads(self.socket.recv(timeout=60))

    def until(self, *kinds):
        while (frame := self.receive())["type"] not in kinds:
            pass
        return frame


@contextmanager
def lanes_of(server):
    with connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:
        yield Lanes(socket)


@HARMONY_SERVER
def test_lanes_run_concurrently_and_one_can_be_cancelled(server):
    with lanes_of(server) as lanes:
        lanes.send(request_body(ENDLESS), stream_id="long")
        lanes.until("response.output_text.delta")
        lanes.send(request_body(DONE), stream_id="short")
        assert lanes.until("response.completed")["stream_id"] == "short"
        lanes.socket.send(json.dumps({"type": "response.cancel", "stream_id": "long"}))
        ended = lanes.until("response.incomplete")
    assert (ended["stream_id"], ended["response"]["status"]) == ("long", "cancelled")


@HARMONY_SERVER
def test_a_prompt_is_rendered_without_generating_and_counted(server):
    with lanes_of(server) as lanes:
        lanes.send(request_body(DONE), generate=False)
        warm = lanes.until("response.completed")["response"]
        lanes.send(request_body(DONE), previous_response_id=warm["id"], input="And now?")
        going_on = lanes.until("response.completed")["response"]
    counted = httpx.post(f"{server.url}/v1/responses/input_tokens", json=request_body(DONE)).json()
    assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
    assert counted == {"object": "response.input_tokens", "input_tokens": warm["usage"]["input_tokens"]}
    charged = httpx.post(f"{server.url}/v1/responses", json=request_body(DONE), timeout=60).json()["usage"]["input_tokens"]
    assert charged == warm["usage"]["input_tokens"] < going_on["usage"]["input_tokens"]


@HARMONY_SERVER
def test_a_refusal_is_one_frame_and_the_socket_stays_open(server):
    with lanes_of(server) as lanes:
        lanes.send(request_body(DONE, model="unheard"))
        refused = lanes.until("error")
        lanes.send(request_body(DONE, prompt={"id": "p"}))
        unsupported = lanes.until("error")
        lanes.send({**request_body(DONE), "input": "word " * 17000})
        too_long = lanes.until("error")
        lanes.send(request_body(DONE))
        assert lanes.until(*ENDS)["type"] == "response.completed"
    assert [frame["status"] for frame in (refused, unsupported, too_long)] == [404, 400, 400]
    assert unsupported["error"]["param"] == "prompt"


@HARMONY_SERVER
def test_a_stored_response_is_listed_and_deleted(server):
    prefix = f"{THINK}Hm.<|end|><|start|>assistant{DONE}"
    first = httpx.post(f"{server.url}/v1/responses", json=request_body(prefix), timeout=60).json()["id"]
    url = f"{server.url}/v1/responses/{first}"
    listed = get(f"{url}/input_items").json()["data"]
    assert [item["content"] for item in listed] == [[{"type": "input_text", "text": "Hi."}]]
    assert httpx.delete(url).json() == {"id": first, "object": "response", "deleted": True}
    missing = httpx.post(f"{server.url}/v1/responses", json=request_body(DONE, previous_response_id=first))
    assert (get(url).status_code, missing.json()["error"]["code"]) == (404, "previous_response_not_found")


@HARMONY_SERVER
def test_a_compressed_body_is_read(server):
    headers = {"content-type": "application/json", "content-encoding": "zstd"}
    content = zstd.compress(json.dumps(request_body(DONE)).encode())
    answer = httpx.post(f"{server.url}/v1/responses", content=content, headers=headers, timeout=60)
    assert answer.json()["status"] == "completed"
    broken = httpx.post(f"{server.url}/v1/responses", content=content[:-1], headers=headers)
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_body")


@HARMONY_SERVER
def test_a_disconnect_of_a_socket_frees_the_engine(server):
    def begin():
        with lanes_of(server) as lanes:
            lanes.send(request_body(ENDLESS))
            lanes.until("response.output_text.delta")

    assert is_aborted(server, begin)


@HARMONY_SERVER
def test_truncation_drops_the_oldest_turns_if_the_request_allows_it(server):
    def ask(**fields):
        long = [items for number in range(40) for items in (user(f"{number} " + "word " * 700), reply(f"{number}"))]
        request = request_body(DONE, input=[*long, user("And now?")], **fields)
        return httpx.post(f"{server.url}/v1/responses", json=request, timeout=120)

    def user(text):
        return {"type": "message", "role": "user", "content": text}

    def reply(text):
        return {"type": "message", "role": "assistant", "content": text}

    assert ask().status_code == 400
    response = ask(truncation="auto", max_output_tokens=100).json()
    assert (response["status"], response["truncation"]) == ("completed", "auto")
    assert CONTEXT - 2000 < response["usage"]["input_tokens"] < CONTEXT - 100


@HARMONY_SERVER
def test_with_one_api_key_all_requests_share_the_prefix_cache(server):
    def cached(key):
        request = request_body(DONE, input="word " * 300, prompt_cache_key=key)
        answer = httpx.post(f"{server.url}/v1/responses", json=request, timeout=60).json()
        return answer["usage"]["input_tokens_details"]["cached_tokens"] > 200  # more than all prompts have in common

    assert [cached(key) for key in ("a", "a", "b")] == [False, True, True]


PARSED_SERVER = pytest.mark.parametrize("server", ["parsed"], indirect=True)

CALL = f"<think>\n\n</think>\n\n{TOOL_CALL}{END}"


def turn(socket, *rounds, **fields):
    request = body("qwen3", Turn("", rounds, body={"tools": [FUNCTION], "store": False, **fields}))
    socket.send(json.dumps({"type": "response.create", **request}))
    while (frame := json.loads(socket.recv(timeout=60)))["type"] not in ENDS:
        pass
    return frame["response"]


@PARSED_SERVER
def test_a_lane_continues_after_a_call(server):
    with connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:
        first = turn(socket, CALL)
        call = first["output"][-1]
        answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        second = turn(socket, "", f"<think>\n\n</think>\n\nIt is sunny.{END}", previous_response_id=first["id"], input=[answer])
        third = turn(socket, "", f"<think>\n\n</think>\n\nGood.{END}", previous_response_id=second["id"], input="Thanks.")
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "get_weather", {"city": "Rome"})
    assert [response["status"] for response in (first, second, third)] == ["completed"] * 3
    prompts = [response["usage"]["input_tokens"] for response in (first, second, third)]
    assert prompts == sorted({*prompts})


@PARSED_SERVER
def test_a_lane_continues_after_an_async_call_and_reads_its_late_output(server):
    tools = [{**FUNCTION, "async": True}]
    with connect(server.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=60) as socket:
        first = turn(socket, CALL, f"<think>\n\n</think>\n\nI wait.{END}", tools=tools)
        call, message = first["output"]
        late = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        written = "", "", f"<think>\n\n</think>\n\nIt is sunny.{END}"
        second = turn(socket, *written, tools=tools, previous_response_id=first["id"], input=[late])
    assert (call["type"], call["async"], message["content"][0]["text"]) == ("function_call", True, "I wait.")
    assert [item["content"][0]["text"] for item in second["output"]] == ["It is sunny."]
