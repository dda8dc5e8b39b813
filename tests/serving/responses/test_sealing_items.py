"""Reasoning that a client carries: sealed for the client, opened when it returns, and removed if it cannot be opened."""

import asyncio
import base64

import httpx
import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from live.engines import ANSWER, REASONING, StagedEngine, steps
from live.sockets import socket_client
from live.wire import bodies

from interlock.serving.responses.sealing import FOREIGN, INLINE, Sealed, SealError, SealingKeys, Seals

TURN = steps(f"{REASONING}{ANSWER}")
SEALING = {"include": ["reasoning.encrypted_content"], "store": False}
THINKING = [{"type": "reasoning_text", "text": "Let me think."}]
KEY = base64.b64encode(bytes(32)).decode()
KEYS = SealingKeys.from_text(KEY)
REQUEST = {"model": "staged", "input": "Hi", **SEALING}


def post(url, body, **options):
    answer = httpx.post(f"{url}/v1/responses", json=body, **options)
    return answer.json() if answer.headers["content-type"] == "application/json" else bodies(answer.content)


def request_with(*items):
    return {**REQUEST, "input": [*items, {"role": "user", "content": "Go on"}]}


def carried(item):
    """A reasoning item as Codex and the AI SDK send it back: without its text."""
    return {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}


def removed(item_id="", reason="organization_mismatch"):
    return [{"type": "reasoning", "id": item_id, "action": "removed", "reason": reason}]


def test_requested_encrypted_content_is_included_when_reasoning_is_done(serve) -> None:
    with serve(StagedEngine(TURN)) as url:
        events = post(url, {**REQUEST, "stream": True})
        plain = post(url, {"model": "staged", "input": "Hi"})
    (added,) = [e["item"] for e in events if e["type"] == "response.output_item.added" and e["item"]["type"] == "reasoning"]
    (done,) = [e["item"] for e in events if e["type"] == "response.output_item.done" and e["item"]["type"] == "reasoning"]
    assert "encrypted_content" not in added
    assert done == events[-1]["response"]["output"][0]
    assert done["content"] == THINKING
    assert b"think" not in base64.urlsafe_b64decode(done["encrypted_content"])
    assert "encrypted_content" not in plain["output"][0]


def test_an_unstored_response_includes_encrypted_content_without_being_asked(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        reasoning, _ = post(url, {"model": "staged", "input": "Hi", "store": False})["output"]
        assert post(url, request_with(carried(reasoning)))["status"] == "completed"
    assert engine.turns[1].items[0]["content"] == THINKING


def test_reasoning_of_another_model_is_removed_and_listed(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        reasoning, message = post(url, REQUEST)["output"]
        body = request_with({**reasoning, "id": "rs_1"}, message)
        events = post(url, {**body, "model": "org/staged-2", "stream": True})
        nameless = post(url, {**request_with(carried(reasoning)), "model": "org/staged-2"})
        same = post(url, body)
    listed = [events[index]["response"]["input_transformations"] for index in (0, -1)]
    assert listed == [removed("rs_1", "model_mismatch")] * 2
    assert (events[-1]["type"], nameless["input_transformations"]) == ("response.completed", removed("", "model_mismatch"))
    assert [[item["type"] for item in turn.items] for turn in engine.turns[1:]] == [
        ["message", "message"],
        ["message"],
        ["reasoning", "message", "message"],
    ]
    assert "input_transformations" not in same


def test_truncated_reasoning_is_sealed(serve) -> None:
    with serve(StagedEngine(steps("<|channel|>analysis<|message|>Let me think.", "length"), TURN)) as url:
        (cut,) = post(url, REQUEST)["output"]
        assert cut["status"] == "incomplete"
        assert post(url, request_with(carried(cut)))["status"] == "completed"


@pytest.mark.parametrize(
    "more", [{}, {"content": None}, {"content": [], "id": "rs_1"}, {"content": [{"type": "text", "text": "A lie"}]}]
)
def test_returned_reasoning_reaches_the_model_unchanged(serve, more) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        reasoning, _ = post(url, REQUEST)["output"]
        assert post(url, request_with({**carried(reasoning), **more}))["status"] == "completed"
    prompt_item = {"type": "reasoning", "summary": [], "content": THINKING}
    assert engine.turns[1].items[0] == {**prompt_item, **({"id": "rs_1"} if "id" in more else {})}


def test_reasoning_is_sealed_and_opened_over_a_websocket(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url, socket_client(url) as socket:

        def turn(body):
            return socket.ask(**body)[-1]

        reasoning, _ = turn(REQUEST)["response"]["output"]
        turn(request_with(carried(reasoning)))
        assert engine.turns[1].items[0]["content"] == THINKING
        response = turn(request_with({**carried(reasoning), "encrypted_content": "AAAA"}))["response"]
        assert response["input_transformations"] == removed()


def test_a_stored_response_continues_with_its_reasoning_as_text(serve) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        first = post(url, {**REQUEST, "store": True})
        post(url, {**REQUEST, "model": "org/staged-2", "store": False, "previous_response_id": first["id"]})
    assert engine.turns[1].items[1]["content"] == THINKING


def test_only_servers_with_the_same_key_open_each_others_reasoning(serve) -> None:
    with serve(StagedEngine(TURN), keys=KEY) as one, serve(StagedEngine(TURN), keys=KEY) as other:
        reasoning, _ = post(one, REQUEST)["output"]
        assert post(other, request_with(carried(reasoning)))["status"] == "completed"
    with serve(StagedEngine(TURN)) as stranger:
        assert post(stranger, request_with(carried(reasoning)))["input_transformations"] == removed()


@pytest.mark.parametrize("sealed", ["secret", "żółw", "A" * 10_000_000, "gAAAA" + "A" * 200])
def test_reasoning_of_another_service_is_removed_and_listed(serve, sealed) -> None:
    engine = StagedEngine(TURN)
    with serve(engine) as url:
        foreign = {"type": "reasoning", "id": "rs_7", "summary": [], "encrypted_content": sealed}
        response = post(url, request_with({"role": "user", "content": "Hi"}, foreign))
    assert (response["status"], response["input_transformations"]) == ("completed", removed("rs_7"))
    assert [item["type"] for item in engine.turns[0].items] == ["message", "message"]


def test_reasoning_of_another_kind_unknown_model_or_key_holder_is_removed(serve) -> None:
    headers, seals = {"authorization": "Bearer one"}, Seals(KEYS, "staged")
    compaction = {"type": "reasoning", "summary": [], "encrypted_content": seals.seal("compaction", {})}
    with serve(StagedEngine(TURN), keys=KEY) as url:
        unknown = {"type": "reasoning", "summary": [], "encrypted_content": Seals(KEYS, "gone").seal("reasoning", {})}
        assert post(url, request_with(unknown))["input_transformations"] == removed("", "model_mismatch")
        assert post(url, request_with(compaction))["input_transformations"] == removed()
    with serve(StagedEngine(TURN), keys=KEY, api_key=["one", "two"]) as url:
        (reasoning, _) = post(url, REQUEST, headers=headers)["output"]
        assert "input_transformations" not in post(url, request_with(carried(reasoning)), headers=headers)
        other = post(url, request_with(carried(reasoning)), headers={"authorization": "Bearer two"})
        assert other["input_transformations"] == removed()


@pytest.mark.parametrize("sealed", ["secret", "gAAAA" + "A" * 200, Seals(KEYS, "gone").seal("compaction", {"summary": "x"})])
def test_a_compaction_of_another_service_or_model_is_refused(serve, sealed) -> None:
    with serve(StagedEngine(TURN), keys=KEY) as url:
        error = post(url, request_with({"type": "compaction", "encrypted_content": sealed}))["error"]
    assert (error["param"], error["code"]) == ("input[0].encrypted_content", "invalid_encrypted_content")


def test_a_sealing_error_omits_the_encrypted_content_from_the_stream(serve, monkeypatch, caplog) -> None:
    def break_down(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(SealingKeys, "seal", break_down)
    with serve(StagedEngine(TURN)) as url:
        events = post(url, {**REQUEST, "stream": True})
    assert events[-1]["type"] == "response.completed"
    assert "encrypted_content" not in events[-1]["response"]["output"][0]
    assert "the reasoning is sent without its encrypted content" in caplog.text


def test_sealing_does_not_catch_a_keyboard_interrupt(monkeypatch) -> None:
    monkeypatch.setattr(SealingKeys, "seal", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Seals(KEYS, "staged").late_fields({"type": "reasoning", "id": "rs_1", "summary": [], "content": THINKING})


def test_encrypted_content_of_an_upstream_is_sealed_again_and_restored() -> None:
    seals = Seals(KEYS, "staged")
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [], "encrypted_content": "gAAA"}
    sealed = {**item, **seals.late_fields(item)}
    assert sealed["encrypted_content"] != "gAAA"
    for request_input in ([sealed], []):  # from the client, or from the store
        assert asyncio.run(seals.unseal([sealed], request_input)) == ((item,), [])


def test_stored_reasoning_that_cannot_be_opened_loses_its_encrypted_content() -> None:
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
    sealed = {**item, **Seals(KEYS, "another").late_fields({**item, "encrypted_content": "gAAA"})}
    assert asyncio.run(Seals(KEYS, "staged").unseal([sealed], [])) == ((item,), [])


OLD, NEW = base64.b64encode(bytes(range(190, 222))).decode(), Fernet.generate_key().decode()
OLD_KEYS = SealingKeys.from_text(OLD)
THOUGHT = Sealed("reasoning", "m", "alice", {"content": "Hm."})
CHANGED = "it was changed, or was sealed with a key that this server does not have"
UNKNOWN = "it was not sealed by Interlock"
JSON = st.dictionaries(st.text(), st.text() | st.integers(0, 2**53) | st.none() | st.booleans())


def open_sealed(text, kind="reasoning", tenant="alice", keys=OLD_KEYS):
    return asyncio.run(keys.open(kind, text, tenant))


def refusal(text, *arguments, **options):
    with pytest.raises(SealError) as refused:
        open_sealed(text, *arguments, **options)
    return str(refused.value)


@given(st.builds(Sealed, st.text(), st.text(), st.text(), JSON))
def test_sealed_content_opens_unchanged(sealed) -> None:
    assert open_sealed(OLD_KEYS.seal(sealed), sealed.kind, sealed.tenant) == sealed


def test_a_token_is_different_each_time_and_contains_no_plain_text() -> None:
    one, other = OLD_KEYS.seal(THOUGHT), OLD_KEYS.seal(THOUGHT)
    assert one != other
    assert b"Hm." not in base64.urlsafe_b64decode(one)


def test_after_a_rotation_the_new_key_seals_and_both_open() -> None:
    rotated, over = SealingKeys.from_text(f" {NEW} ,\n{OLD}"), SealingKeys.from_text(NEW)
    old, new = OLD_KEYS.seal(THOUGHT), rotated.seal(THOUGHT)
    assert [open_sealed(text, keys=keys) for text, keys in [(old, rotated), (new, rotated), (new, over)]] == [THOUGHT] * 3
    assert refusal(old, keys=over) == CHANGED


@pytest.mark.parametrize(("kind", "tenant"), [("compaction", "alice"), ("reasoning", "bob"), ("reasoning", "")])
def test_content_of_another_kind_or_tenant_is_refused(kind, tenant) -> None:
    assert refusal(OLD_KEYS.seal(THOUGHT), kind, tenant) == FOREIGN


def test_every_changed_or_missing_character_is_detected() -> None:
    token = OLD_KEYS.seal(THOUGHT)
    assert not token.endswith("=")  # so that every bit of the last character counts
    for place, character in enumerate(token):
        for other in {"A", "g", "_", "é", ""} - {character}:
            assert refusal(f"{token[:place]}{other}{token[place + 1 :]}") in {CHANGED, UNKNOWN}


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(b"\x01" + bytes(8 + 12 + 100)).decode(),  # the format before Fernet: version, key id, nonce and AES-GCM
        "secret",
        "żółw",
        "",
    ],
)
def test_content_in_another_format_is_refused(text) -> None:
    assert refusal(text) == UNKNOWN


@pytest.mark.parametrize("text", ["gAAAAABo" + "A" * 100, "gAAAAżółw", "gAAAA"])
def test_a_token_of_another_service_is_refused(text) -> None:
    assert refusal(text) == CHANGED


def test_the_event_loop_runs_while_a_huge_token_is_opened() -> None:
    sealed = THOUGHT._replace(content={"content": "x" * INLINE})
    turns = 0

    async def run():
        nonlocal turns
        opening = asyncio.create_task(OLD_KEYS.open("reasoning", OLD_KEYS.seal(sealed), "alice"))
        while not opening.done():
            turns += 1
            await asyncio.sleep(0)
        return await opening

    assert asyncio.run(run()) == sealed
    assert turns > 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "key 1 has 0 bytes instead of 32"),
        (f"{OLD},", "key 2 has 0 bytes instead of 32"),
        ("secret!", "key 1 is not base64"),
        (f"{OLD},ключ", "key 2 is not base64"),
        (f"{OLD},{OLD[4:]}", "key 2 has 29 bytes instead of 32"),
    ],
)
def test_an_invalid_key_is_reported_only_by_its_position(text, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        SealingKeys.from_text(text)


def test_a_random_key_differs_each_time_and_is_not_shown() -> None:
    one, other = SealingKeys.random(), SealingKeys.random()
    assert open_sealed(one.seal(THOUGHT), keys=one) == THOUGHT
    assert one != other
    assert repr(one) == "SealingKeys()"
