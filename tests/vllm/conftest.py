"""Real engines are started one after another, each for the tests that name it; without vLLM there is nothing to collect."""

from importlib.util import find_spec

import pytest

if find_spec("vllm.v1") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def server(request):
    from servers import SETUPS, Server  # noqa: PLC0415 - it needs packages that are there with vLLM alone

    with Server(SETUPS[request.param], request.param) as started:
        yield started
