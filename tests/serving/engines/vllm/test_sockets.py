"""WebSocket mode in the plugin: a request becomes a run by way of vLLM, and a lane goes on from what it said."""

import asyncio
import json

import fake_vllm as fake
import pytest
from fake_vllm import Serving, outputs
from live.plugged import ANSWER
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from uvicorn.config import WS_PROTOCOLS, Config

from interlock.serving.engines.vllm.plugin import InterlockPlugin
from interlock.serving.http.bounded_protocol import BoundedProtocol
from interlock.verify.oracle import check

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}
ASK = {"type": "response.create", "model": "m", "input": "Hi", "store": False}
CALL = '<|channel|>commentary to=functions.f<|message|>{"a": 1}<|call|>'

pytestmark = pytest.mark.usefixtures("vllm")


class Connected:
    """A connection to an imitated vLLM with the plugin, spoken to in JSON."""

    def __init__(self, serving, engine=None, args=None, **headers):
        plugin, app = InterlockPlugin(), fake.application()
        plugin.attach_router(app)
        app.state.openai_serving_responses = serving
        asyncio.run(plugin.init_state(engine, app.state, args))
        self.app = app
        self.headers = headers

    def __enter__(self):
        self.client = TestClient(self.app).__enter__()
        self.socket = self.client.websocket_connect("/v1/responses", headers=self.headers).__enter__()
        return self

    def __exit__(self, *error):
        self.socket.__exit__(*error)
        self.client.__exit__(*error)

    async def end(self):
        """Shut the server down."""
        api = self.app.state.interlock
        api.service.active_runs.end()
        api.open_sockets.end()

    def ask(self, **fields):
        """The frames of a turn, up to the end of a response or the one that is an error."""
        self.socket.send_text(json.dumps({**ASK, **fields}))
        frames = [json.loads(self.socket.receive_text())]
        while frames[-1]["type"] not in ENDS:
            frames.append(json.loads(self.socket.receive_text()))
        return frames


def refusal_of(frames):
    (frame,) = frames
    return frame["status"], frame["error"]["param"], frame["error"]["code"], frame["error"]["message"]


def test_what_clients_send_to_the_server_of_vllm_is_bounded(monkeypatch):
    monkeypatch.setitem(WS_PROTOCOLS, "auto", WS_PROTOCOLS["auto"])
    with Connected(Serving(fake.HarmonyContext, outputs(ANSWER))) as connected:
        config = Config(connected.app)
        config.load()
    assert config.ws_protocol_class is BoundedProtocol


def test_a_turn_is_the_stream_of_a_post():
    with Connected(Serving(fake.HarmonyContext, outputs(ANSWER))) as connected:
        frames = connected.ask()
    assert check(frames) == []
    assert frames[-1]["response"]["output"][0]["content"][0]["text"] == "Hello there."


def test_a_lane_goes_on_from_what_it_said_although_nothing_is_stored():
    serving = Serving(fake.HarmonyContext, outputs(CALL))
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
    with Connected(serving) as connected:
        first = connected.ask(tools=tools)[-1]["response"]
        serving.script = [outputs(ANSWER)]
        answer = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "2"}
        second = connected.ask(previous_response_id=first["id"], input=[answer])[-1]["response"]
    assert (second["status"], second["previous_response_id"]) == ("completed", first["id"])
    request = serving.requests[-1]
    assert request.previous_response_id is None
    assert [item["type"] for item in request.input] == ["message", "function_call", "function_call_output"]


def test_what_cannot_go_on_is_refused_and_evicts_what_it_went_on_from():
    missing = (400, "previous_response_id", "previous_response_not_found")
    with Connected(Serving(fake.HarmonyContext, outputs(ANSWER))) as connected:
        assert refusal_of(connected.ask(previous_response_id="resp_unheard"))[:3] == missing
        first = connected.ask()[-1]["response"]["id"]
        answer = {"type": "function_call_output", "call_id": "call_nobody", "output": "1"}
        wrong = refusal_of(connected.ask(previous_response_id=first, input=[answer]))
        assert wrong[0::3] == (400, "No tool call found for function call output with call_id call_nobody.")
        assert refusal_of(connected.ask(previous_response_id=first))[:3] == missing
        assert connected.ask()[-1]["type"] == "response.completed"


def test_a_stored_response_can_be_gone_on_from_on_any_connection():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    with Connected(serving) as connected:
        first = connected.ask(store=True)[-1]["response"]["id"]
        with connected.client.websocket_connect("/v1/responses") as another:
            another.send_text(json.dumps({**ASK, "previous_response_id": first}))
            frames = [json.loads(another.receive_text())]
            while frames[-1]["type"] not in ENDS:
                frames.append(json.loads(another.receive_text()))
    assert frames[-1]["response"]["previous_response_id"] == first
    assert [item["role"] for item in serving.requests[-1].input] == ["user", "assistant", "user"]


def test_without_generate_the_prompt_is_rendered_and_the_engine_is_not_asked():
    serving = Serving(fake.HarmonyContext, outputs(ANSWER))
    with Connected(serving) as connected:
        frames = connected.ask(generate=False)
        assert not serving.started.is_set()
        assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.completed"]
        warm = frames[-1]["response"]
        assert (warm["output"], warm["usage"]["input_tokens"], warm["usage"]["output_tokens"]) == ([], 3, 0)
        assert connected.ask(previous_response_id=warm["id"])[-1]["type"] == "response.completed"


class VLLMValidationError(Exception):
    """vLLM's class of this name."""


def test_what_vllm_refuses_is_an_error_on_a_socket_that_stays_open():
    class Refusing(Serving):
        async def create_responses(self, request, raw_request):
            assert raw_request.headers["x-session"] == "a"
            if request.input == "raise":
                raise VLLMValidationError("It is too long.")
            return await super().create_responses(request, raw_request)

    with Connected(Refusing(fake.HarmonyContext, outputs(ANSWER)), **{"x-session": "a"}) as connected:
        assert refusal_of(connected.ask(input="refuse"))[0::3] == (400, "It is refused.")
        assert refusal_of(connected.ask(input="raise"))[0::3] == (400, "It is too long.")
        assert refusal_of(connected.ask(max_output_tokens="many"))[:2] == (400, "max_output_tokens")
        assert refusal_of(connected.ask(input=[{"type": "from_the_future"}]))[:2] == (400, "input[0].type")
        assert connected.ask()[-1]["type"] == "response.completed"


def test_a_fault_of_vllm_is_an_error_of_the_server():
    with Connected(Serving(fake.HarmonyContext, [RuntimeError("It broke.")])) as connected:
        message = "The server had an error while processing your request."
        assert refusal_of(connected.ask()) == (500, None, None, message)


def test_a_client_that_leaves_aborts_what_runs():
    gate = asyncio.Event()
    serving = Serving(fake.HarmonyContext, [*outputs(ANSWER)[:4], gate])
    with Connected(serving) as connected:
        connected.socket.send_text(json.dumps(ASK))
        while json.loads(connected.socket.receive_text())["type"] != "response.output_text.delta":
            pass
    assert serving.aborted


def test_a_shutdown_ends_what_runs_and_closes_with_the_code_of_a_restart():
    gate = asyncio.Event()
    serving = Serving(fake.HarmonyContext, [*outputs(ANSWER)[:4], gate])
    with Connected(serving) as connected:
        connected.socket.send_text(json.dumps(ASK))
        while json.loads(connected.socket.receive_text())["type"] != "response.output_text.delta":
            pass
        connected.client.portal.call(connected.end)
        while (frame := json.loads(connected.socket.receive_text()))["type"] not in ENDS:
            pass
        with pytest.raises(WebSocketDisconnect) as closed:
            connected.socket.receive_text()
    assert (frame["type"], closed.value.code) == ("response.failed", 1012)


def test_requests_that_have_not_begun_at_a_shutdown_fail_legally():
    class Slow(Serving):
        async def create_responses(self, request, _raw_request):
            if request.input == "slow":
                self.started.set()
                await asyncio.Event().wait()
            raise RuntimeError("The engine is dead.")

    serving = Slow(fake.HarmonyContext)
    with Connected(serving) as connected:
        for prompt in ("slow", "never"):
            connected.socket.send_text(json.dumps({**ASK, "input": prompt}))
        connected.client.portal.call(serving.started.wait)
        connected.client.portal.call(connected.end)
        turns = [[], []]
        for frames in turns:
            while not frames or frames[-1]["type"] not in ENDS:
                frames.append(json.loads(connected.socket.receive_text()))
    assert [(frames[-1]["type"], check(frames)) for frames in turns] == [("response.failed", [])] * 2


def test_a_page_of_an_origin_that_vllm_does_not_allow_is_refused():
    class Args:
        allowed_origins = ("http://friend",)

    def try_origin(origin):
        try:
            with Connected(Serving(fake.HarmonyContext, outputs(ANSWER)), args=Args, origin=origin) as connected:
                return connected.ask()[-1]["type"]
        except WebSocketDenialResponse as refused:
            return refused.json()["error"]["code"]

    assert [try_origin("http://foe"), try_origin("http://friend")] == ["origin_not_allowed", "response.completed"]


def test_a_server_whose_model_makes_no_responses_takes_no_connection():
    with pytest.raises(WebSocketDisconnect), Connected(None):
        pass


@pytest.mark.parametrize(("setting", "dialect"), [("open_responses", True), ("openai", False)])
def test_the_default_dialect_of_a_server_is_a_setting(monkeypatch, setting, dialect):
    monkeypatch.setenv("INTERLOCK_DIALECT", setting)
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    with Connected(Serving(fake.HarmonyContext, outputs(thought + ANSWER))) as connected:
        frames = connected.ask()
    assert ("response.reasoning.delta" in {frame["type"] for frame in frames}) is dialect
