"""The clients are collected where they were installed, which `make test-clients` does; vLLM is among the hosts where it is."""

from pathlib import Path

import pytest

if not (Path(__file__).parent / "node_modules").exists():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", params=["a server of our own", "gpt-oss in vLLM", "qwen3_coder in vLLM"])
def host(request, tmp_path_factory):
    """Returns what serves a script, in each of the hosts."""
    from clients import hosts  # noqa: PLC0415 - it needs what is installed for the clients

    if request.param == "a server of our own":
        yield hosts.standalone
        return
    if not hosts.VLLM_PYTHON.exists():
        pytest.skip("no vLLM in .venv-vllm, where `make test-vllm` puts it")
    settings = {
        "gpt-oss in vLLM": ("gpt_oss-turns", hosts.harmony, 12_000, "question"),
        "qwen3_coder in vLLM": ("qwen3_coder-turns", hosts.qwen3_coder, 17_000, "none"),
    }[request.param]
    with hosts.InVllm(*settings, tmp_path_factory.mktemp("turns")) as started:
        yield started
