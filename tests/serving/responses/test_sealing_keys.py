import asyncio
import base64

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from interlock.serving.responses.sealing import FOREIGN, INLINE, Sealed, SealError, SealingKeys

OLD, NEW = base64.b64encode(bytes(range(190, 222))).decode(), Fernet.generate_key().decode()
KEYS = SealingKeys.from_text(OLD)
THOUGHT = Sealed("reasoning", "m", "alice", {"content": "Hm."})
CHANGED = "it was changed, or was sealed with a key that this server does not have"
UNKNOWN = "it was not sealed by Interlock, or by an older release, whose format is not supported any more"
JSON = st.dictionaries(st.text(), st.text() | st.integers(0, 2**53) | st.none() | st.booleans())


def open_sealed(text, kind="reasoning", tenant="alice", keys=KEYS):
    return asyncio.run(keys.open(kind, text, tenant))


def refusal(text, *arguments, **options):
    with pytest.raises(SealError) as refused:
        open_sealed(text, *arguments, **options)
    return str(refused.value)


@given(st.builds(Sealed, st.text(), st.text(), st.text(), JSON))
def test_sealed_content_opens_unchanged(sealed) -> None:
    assert open_sealed(KEYS.seal(sealed), sealed.kind, sealed.tenant) == sealed


def test_a_token_is_different_each_time_and_contains_no_plain_text() -> None:
    one, other = KEYS.seal(THOUGHT), KEYS.seal(THOUGHT)
    assert one != other
    assert b"Hm." not in base64.urlsafe_b64decode(one)


def test_after_a_rotation_the_new_key_seals_and_both_open() -> None:
    rotated, over = SealingKeys.from_text(f" {NEW} ,\n{OLD}"), SealingKeys.from_text(NEW)
    old, new = KEYS.seal(THOUGHT), rotated.seal(THOUGHT)
    assert [open_sealed(text, keys=keys) for text, keys in [(old, rotated), (new, rotated), (new, over)]] == [THOUGHT] * 3
    assert refusal(old, keys=over) == CHANGED


@pytest.mark.parametrize(("kind", "tenant"), [("compaction", "alice"), ("reasoning", "bob"), ("reasoning", "")])
def test_content_of_another_kind_or_tenant_is_refused(kind, tenant) -> None:
    assert refusal(KEYS.seal(THOUGHT), kind, tenant) == FOREIGN


def test_every_changed_or_missing_character_is_noticed() -> None:
    token = KEYS.seal(THOUGHT)
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
def test_content_that_was_sealed_otherwise_is_refused(text) -> None:
    assert refusal(text) == UNKNOWN


@pytest.mark.parametrize("text", ["gAAAAABo" + "A" * 100, "gAAAAżółw", "gAAAA"])
def test_a_token_of_another_service_is_refused(text) -> None:
    assert refusal(text) == CHANGED


def test_the_event_loop_runs_while_a_huge_token_is_opened() -> None:
    sealed = THOUGHT._replace(content={"content": "x" * INLINE})
    turns = 0

    async def run():
        nonlocal turns
        opening = asyncio.create_task(KEYS.open("reasoning", KEYS.seal(sealed), "alice"))
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
def test_a_wrong_key_is_named_by_its_position_only(text, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        SealingKeys.from_text(text)


def test_a_random_key_differs_each_time_and_is_not_shown() -> None:
    one, other = SealingKeys.random(), SealingKeys.random()
    assert open_sealed(one.seal(THOUGHT), keys=one) == THOUGHT
    assert one != other
    assert repr(one) == "SealingKeys()"
