"""A fake vLLM, installed for one test."""

import base64

import fake_vllm as fake
import pytest


@pytest.fixture
def vllm(monkeypatch):
    monkeypatch.setenv("INTERLOCK_KEYS", base64.b64encode(bytes(32)).decode())
    return fake.install(monkeypatch)
