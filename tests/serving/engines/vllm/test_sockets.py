"""WebSocket mode in the plugin: its protocol, and the refusals of vLLM."""

import asyncio
import json

import fake_vllm as fake
import pytest
from fake_vllm import ANSWER, Serving, outputs
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from uvicorn.config import WS_PROTOCOLS, Config

from interlock.serving.engines.vllm.plugin import InterlockPlugin
from interlock.serving.http.bounded_protocol import BoundedProtocol

ENDS = {"response.completed", "response.incomplete", "response.failed", "error"}
ASK = {"type": "response.create", "model": "m", "input": "Hi", "store": False}

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
