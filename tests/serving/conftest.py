"""Real servers on loopback, each in a thread of its own, and requests that wait for them however slow the machine is."""

import asyncio
import base64
import ssl
from contextlib import contextmanager
from inspect import signature, unwrap
from types import SimpleNamespace

import fake_vllm
import httpx
import pytest
import uvicorn.server

from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings

default_timeout = signature(httpx.get).parameters["timeout"].default
default_timeout.connect = default_timeout.read = default_timeout.write = default_timeout.pool = 300.0

# Each client would load the certificates of the system, which takes longer than most requests of these tests.
certificates = ssl.create_default_context()
for call in (httpx.get, httpx.post, httpx.delete, httpx.request, httpx.stream, httpx.Client.__init__, httpx.AsyncClient.__init__):
    unwrap(call).__kwdefaults__["verify"] = certificates

# uvicorn checks ten times a second whether to stop, and pauses as long before it does; here both are faster.
uvicorn.server.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": lambda seconds: asyncio.sleep(seconds / 20)})


@pytest.fixture(scope="session")
def url():
    """The URL of a server with the embedded engine, which all tests share."""
    with ServerThread(build(Settings(), EmbeddedEngine())) as url:
        yield url


@pytest.fixture
def serve():
    """Serve an engine for a while, with the given store, tools and settings; gives the URL."""

    @contextmanager
    def serve_engine(engine, *, store=None, tools=None, **settings):
        with ServerThread(build(Settings(**settings), engine, store=store, tools=tools)) as url:
            yield url

    return serve_engine


@pytest.fixture
def vllm(monkeypatch):
    """A fake vLLM, installed for one test."""
    monkeypatch.setenv("INTERLOCK_KEYS", base64.b64encode(bytes(32)).decode())
    return fake_vllm.install(monkeypatch)
