"""vLLM's application, as far as it is imitated, with the plugin on it."""

import contextlib

import fake_vllm as fake
import httpx

from interlock.serving.engines.vllm.plugin import InterlockPlugin

ANSWER = "<|channel|>final<|message|>Hello there.<|return|>"
BODY = {"model": "m", "input": "Hi", "request_id": "resp_1"}


@contextlib.asynccontextmanager
async def client_of(serving, engine=None, args=None):
    """A client of it."""
    plugin, app = InterlockPlugin(), fake.application()
    plugin.attach_router(app)
    app.state.openai_serving_responses = serving
    await plugin.init_state(engine, app.state, args)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://vllm") as client:
        client.app = app
        yield client
