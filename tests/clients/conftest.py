"""The tests of clients are collected if `make test-clients` has installed the clients; vLLM is a host if it is installed."""

from pathlib import Path

import pytest

if not (Path(__file__).parent / "node_modules").exists():
    collect_ignore_glob = ["test_*.py"]


HOSTS = (
    "a server of our own",
    "gpt-oss in vLLM",
    "qwen3_coder in vLLM",
    "a gateway over vLLM's chat",
    "a gateway over vLLM's tokens",
)
"""The default hosts of a test, which all serve the Responses API."""


@pytest.fixture(scope="session", params=HOSTS)
def host(request, tmp_path_factory):
    """Return the function that serves a script, for each host."""
    from clients import hosts  # noqa: PLC0415 - it needs what is installed for the clients

    hosted = {"a server of our own": hosts.standalone, "a gateway over our chat": hosts.over_chat}
    if request.param in hosted:
        yield hosted[request.param]
        return
    if not hosts.VLLM_PYTHON.exists():
        pytest.skip("no vLLM in .venv-vllm, where `make test-vllm` puts it")
    settings = {
        "gpt-oss in vLLM": ("gpt_oss-turns", hosts.harmony, "question"),
        "qwen3_coder in vLLM": ("qwen3_coder-turns", hosts.qwen3_coder, "none"),
        "a gateway over vLLM's chat": ("stock-qwen3_coder-turns", hosts.qwen3_coder, "none"),
        "a gateway over vLLM's tokens": ("stock-gpt_oss-turns", hosts.harmony, "question"),
    }[request.param]
    api = {"a gateway over vLLM's chat": "chat", "a gateway over vLLM's tokens": "vllm"}.get(request.param)
    with hosts.InVllm(*settings, tmp_path_factory.mktemp("turns"), api) as started:
        yield started
