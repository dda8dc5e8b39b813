import base64

import pytest

from interlock.serving.responses.sealing import KEYS_VARIABLE, SealingKey, SealingKeys

FIRST, SECOND = bytes(range(32)), bytes(range(1, 33))


def key_list(*secrets):
    return ",".join(base64.b64encode(secret).decode() for secret in secrets)


def test_the_first_key_seals_and_all_open():
    keys = SealingKeys.from_text(f" {key_list(FIRST)} ,\n{key_list(SECOND)}")
    assert keys == SealingKeys(SealingKey(FIRST), (SealingKey(SECOND),))
    assert [keys.find(SealingKey(secret).id) for secret in (FIRST, SECOND)] == [SealingKey(FIRST), SealingKey(SECOND)]
    assert keys.find(SealingKey(bytes(32)).id) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "key 1 has 0 bytes instead of 32"),
        (f"{key_list(FIRST)},", "key 2 has 0 bytes instead of 32"),
        ("secret!", "key 1 is not base64"),
        (f"{key_list(FIRST)},ключ", "key 2 is not base64"),
        (key_list(FIRST, FIRST[1:]), "key 2 has 31 bytes instead of 32"),
        (key_list(FIRST, SECOND, FIRST), "key 3 repeats key 1"),
    ],
)
def test_a_wrong_key_is_named_by_its_place_alone(text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        SealingKeys.from_text(text)


def test_a_random_key_is_another_each_time_and_shows_nothing_of_itself():
    one, other = SealingKeys.random(), SealingKeys.random()
    assert len(one.sealing.secret) == 32
    assert one != other
    assert repr(one) == "SealingKeys(sealing=SealingKey(), others=())"


def test_the_environment_holds_the_keys(monkeypatch):
    monkeypatch.setenv(KEYS_VARIABLE, key_list(FIRST))
    assert SealingKeys.from_environment() == SealingKeys(SealingKey(FIRST))
    monkeypatch.delenv(KEYS_VARIABLE)
    assert SealingKeys.from_environment() is None
    monkeypatch.setenv(KEYS_VARIABLE, "")
    with pytest.raises(ValueError, match=r"^INTERLOCK_KEYS: key 1 has 0 bytes instead of 32$"):
        SealingKeys.from_environment()
