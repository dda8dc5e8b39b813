"""Starts real engines one after another, each for the tests that name it; without vLLM, no test is collected."""

from importlib.util import find_spec

import pytest

if find_spec("vllm.v1") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def line(request):
    from servers import Line  # noqa: PLC0415 - it needs packages that only vLLM installs

    # pytest has sorted the tests by now, so that the tests of one server run together.
    tests = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    servers = Line([*dict.fromkeys(params["server"] for params in tests if "server" in params)])
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def server(request, line):
    return line.serving(request.param)
