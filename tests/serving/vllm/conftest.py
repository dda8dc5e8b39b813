"""A vLLM that is imitated, for the time of a test."""

import fake_vllm as fake
import pytest


@pytest.fixture
def vllm(monkeypatch):
    return fake.install(monkeypatch)
