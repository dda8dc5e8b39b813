"""Plays scripted turns on a server, and reads and judges the answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Final

import httpx
import openai_harmony
import servers
import tiny_models
from open_responses_oracle import check_in
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import Tokenizer
from turns import Turn

from interlock.dialects import ApiName
from interlock.events.dialects import DialectName
from interlock.judges import AnyJudge
from interlock.judges.judging import Verdict

TIMEOUT: Final = 60.0
"""The longest wait for an answer, in seconds; an engine on a CPU can keep all cores busy for several of them."""

get = partial(httpx.get, timeout=TIMEOUT)
IDS: Final = ("id", "call_id", "container_id")
TIMES: Final = ("created_at", "completed_at", "metrics")
CHANCE: Final = frozenset({*IDS, *TIMES, "cached_tokens", "cache_write_tokens"})
"""The fields that differ from run to run."""


@cache
def _tokenizer(model: str) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_models.built(model, servers.CACHE / "models") / "tokenizer.json"))


@cache
def _harmony() -> openai_harmony.HarmonyEncoding:
    """Return the vocabulary of gpt-oss, which takes a fifth of a second to load."""
    return openai_harmony.load_harmony_encoding("HarmonyGptOss")


def tokens(model: str, text: str) -> list[int]:
    """Encode the output of a model, control tokens included."""
    if model == "gpt_oss":
        return _harmony().encode(text, allowed_special="all")
    return _tokenizer(model).encode(text, add_special_tokens=False).ids


def text(model: str, token_ids: Sequence[int]) -> str:
    """Decode the prompt of a model, control tokens included."""
    if model == "gpt_oss":
        return _harmony().decode(token_ids)
    return _tokenizer(model).decode(token_ids, skip_special_tokens=False)


def body(model: str, turn: Turn, **fields: object) -> dict[str, object]:
    """Return the request that plays a turn."""
    mark = "<|call|>" if model == "gpt_oss" else "</tool_call>"
    script = {f"round_{place}": tokens(model, text) for place, text in enumerate(turn.rounds)}
    (round_token,) = tokens(model, mark)
    request = {"model": "tiny", "input": "Hi.", "vllm_xargs": {"round_token": round_token, **script}}
    return {**request, **turn.body, **fields}


def stream(url: str, request: Mapping[str, object], path: str = "/v1/responses", **headers: str) -> bytes:
    """Return the bytes of a stream, up to its end or to a broken connection."""
    pieces: list[bytes] = []
    try:
        with httpx.stream("POST", f"{url}{path}", json={**request, "stream": True}, headers=headers, timeout=TIMEOUT) as answer:
            pieces.extend(answer.iter_bytes())
            assert answer.headers["content-type"].startswith("text/event-stream"), b"".join(pieces)
    except httpx.RemoteProtocolError:
        pass  # the judges report a stream that is cut
    return b"".join(pieces)


def events(data: bytes) -> list[dict[str, object]]:
    """Return the bodies of a stream's events."""
    lines = data.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ") and line != "data: [DONE]"]


def verdict(data: bytes, dialect: DialectName = "openai", api: ApiName = "responses") -> Verdict:
    """Return the verdict of `interlock check` on a stream."""
    judge = AnyJudge(api=api, dialect=dialect)
    judge.feed(data)
    return judge.end()


def judged(data: bytes, dialect: DialectName = "openai") -> list[dict[str, object]]:
    """Assert that both judges find a stream legal, and return its events."""
    messages = [str(finding) for finding in verdict(data, dialect).findings]
    bodies = events(data)
    messages += [str(finding) for finding in check_in(dialect, bodies)]
    assert messages == [], data.decode()
    return bodies


def ended(data: bytes, dialect: DialectName = "openai") -> dict[str, object]:
    """Assert that both judges find a stream legal, and return its final response."""
    return judged(data, dialect)[-1]["response"]


def summary(response: Mapping[str, object]) -> list[str]:
    """Return the items of a response as a turn declares them: the type, and the status if it is not `completed`."""
    items: Sequence[Mapping[str, object]] = response["output"]
    statuses = (str(item.get("status", "completed")) for item in items)
    return [f"{item['type']} {status}".removesuffix(" completed") for item, status in zip(items, statuses, strict=True)]


def at_once(turns: Sequence[Turn], play: Callable[[Turn], object]) -> None:
    """Play turns at once, since an engine's step for many requests takes little more than for one; name each turn that fails.

    The turns that need a later release of vLLM are left out.
    """

    def played(turn: Turn) -> Exception | None:
        try:
            play(turn)
        except Exception as error:  # noqa: BLE001 - as pytest does
            error.add_note(f"the turn: {turn.name}")
            return error
        return None

    chosen = [turn for turn in turns if turn.since <= servers.RELEASE]
    with ThreadPoolExecutor(servers.AT_ONCE) as pool:
        failures = [error for error in pool.map(played, chosen) if error is not None]
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(chosen)} turns fail", failures)


def metric(url: str, name: str) -> float:
    """Return the sum of one of vLLM's metrics over its labels."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=TIMEOUT).text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def without_chance(value: object, chance: Container[str] = CHANCE) -> object:
    """Return a response, or a part of it, without the fields in `chance`, which differ from run to run."""
    match value:
        case dict():
            return {name: without_chance(inner, chance) for name, inner in value.items() if name not in chance}
        case list():
            return [without_chance(inner, chance) for inner in value]
        case _:
            return value


def both(url: str, request: Mapping[str, object], chance: Container[str] = CHANCE) -> dict[str, object]:
    """Return the response of a legal stream, and assert that it equals the one without streaming."""
    response = judged(stream(url, request))[-1]["response"]
    answer = httpx.post(f"{url}/v1/responses", json=request, timeout=TIMEOUT)
    assert answer.status_code == 200
    assert without_chance(answer.json(), chance) == without_chance(response, chance)
    return response


def check(url: str, model: str, turn: Turn, chance: Container[str] = CHANCE) -> None:
    """Assert that a turn has its items and its status, streamed and in one piece."""
    response = both(url, body(model, turn), chance)
    assert (summary(response), response["status"]) == (list(turn.items), turn.status)


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, for at most two minutes."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_aborted(server: servers.Server, begin: Callable[[], None]) -> bool:
    """Return whether the engine stops a response whose client disconnects, long before it fills the context.

    On a busy machine the server may learn of the disconnect late, or the response may not have begun before it; so a few attempts
    are made.

    Args:
        server: The server.
        begin: Begins an endless response, and disconnects.
    """
    for _ in range(10):
        before = metric(server.url, "vllm:generation_tokens_total")
        begin()
        until(lambda: metric(server.url, "vllm:num_requests_running") == 0)
        if 0 < metric(server.url, "vllm:generation_tokens_total") - before < servers.HARMONY.context // 2:
            return True
    return False
