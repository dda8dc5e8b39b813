"""The standalone server does what Open Responses' compliance suite asks, in that dialect."""

import pytest
from live.open_responses import CASES, Suite

from interlock.serving.build import build
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings


@pytest.fixture(scope="module")
def suite():
    with ServerThread(build(Settings(dialect="open_responses"), EmbeddedEngine())) as url:
        yield Suite(url, MODEL)


@pytest.mark.parametrize("case", CASES)
def test_the_server_passes(suite, case) -> None:
    CASES[case](suite)
