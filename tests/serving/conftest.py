"""Real servers on loopback, each in a thread of its own."""

from contextlib import contextmanager

import pytest

from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread


@pytest.fixture(scope="session")
def url():
    """The URL of a server with the embedded engine, which all tests share."""
    with ServerThread(create_app(EmbeddedEngine())) as url:
        yield url


@pytest.fixture
def serve():
    """Serve an engine for a while, with the given options; gives the URL."""

    @contextmanager
    def serve_engine(engine, **options):
        with ServerThread(create_app(engine, **options)) as url:
            yield url

    return serve_engine
