"""Real servers on loopback, each in a thread of its own, and requests that wait for them however slow the machine is."""

from contextlib import contextmanager
from inspect import signature

import httpx
import pytest

from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.app import AppSettings, create_app
from interlock.serving.http.server import ServerThread

default_timeout = signature(httpx.get).parameters["timeout"].default
default_timeout.connect = default_timeout.read = default_timeout.write = default_timeout.pool = 300.0


@pytest.fixture(scope="session")
def url():
    """The URL of a server with the embedded engine, which all tests share."""
    with ServerThread(create_app(EmbeddedEngine())) as url:
        yield url


@pytest.fixture
def serve():
    """Serve an engine for a while, with the given store, tools and settings; gives the URL."""

    @contextmanager
    def serve_engine(engine, *, store=None, tools=None, **settings):
        with ServerThread(create_app(engine, AppSettings(**settings), store=store, tools=tools)) as url:
            yield url

    return serve_engine
