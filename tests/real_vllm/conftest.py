"""Starts real engines one after another, each for the tests that name it; without vLLM, no test is collected."""

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Sort the tests, so that those of one server run together, and one that ends the server comes last.

    pytest sorts apart what has more parameters than the server.
    """
    places = {}

    def place(item):
        name = item.callspec.params.get("server") if hasattr(item, "callspec") else None
        return places.setdefault(name, len(places)), item.get_closest_marker("ends_server") is not None

    others = [item for item in items if HERE not in item.path.parents]
    items[:] = [*others, *sorted((item for item in items if HERE in item.path.parents), key=place)]


@pytest.fixture(scope="session")
def line(request):
    from servers import Line  # noqa: PLC0415 - it needs packages that only vLLM installs

    tests = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    servers = Line([*dict.fromkeys(params["server"] for params in tests if "server" in params)])
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def server(request, line):
    return line.serving(request.param)
