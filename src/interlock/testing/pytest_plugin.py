"""The pytest plugin: the fixture `interlock`, a mock of a model's server that a test scripts. docs/guides/mock.md describes it.

Every test run of an environment with Interlock imports this module, so it imports nothing heavy before a test wants the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from interlock.testing.mock import Mock, MockServer


STRICT: Final = "interlock_strict"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes mocks strict."""
    parser.addini(STRICT, "fail for unused steps of mocks, and for calls of tools that a request does not offer", type="bool")


@pytest.fixture(scope="session")
def interlock_server() -> Generator[MockServer]:
    """Return the server of the mocks of all tests, one for each process."""
    from interlock.testing.mock import MockServer  # noqa: PLC0415 - see above

    with MockServer() as server:
        yield server


@pytest.fixture
def interlock(interlock_server: MockServer, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> Generator[Mock]:
    """Return a mock that the SDKs of OpenAI and Anthropic find in the environment.

    The test fails at its end if a request had no answer, or if a stream was illegal.
    """
    from interlock.testing.mock import Mock  # noqa: PLC0415 - see above

    with Mock(server=interlock_server, strict=bool(pytestconfig.getini(STRICT))) as mock:
        for name, value in mock.environment.items():
            monkeypatch.setenv(name, value)
        yield mock
