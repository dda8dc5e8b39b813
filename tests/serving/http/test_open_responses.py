"""The standalone server does what Open Responses' compliance suite asks, in that dialect."""

import pytest
from live.open_responses import CASES, Suite

from interlock.events.dialects import OPEN_RESPONSES
from interlock.serving.engines.embedded import MODEL, EmbeddedEngine
from interlock.serving.http.app import AppSettings, create_app
from interlock.serving.http.server import ServerThread


@pytest.fixture(scope="module")
def suite():
    with ServerThread(create_app(EmbeddedEngine(), AppSettings(dialect=OPEN_RESPONSES))) as url:
        yield Suite(url, MODEL)


@pytest.mark.parametrize("case", CASES)
def test_the_server_passes(suite, case) -> None:
    CASES[case](suite)
