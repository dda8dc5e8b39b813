import sys

import pytest
from each import each

from interlock.parsers.harmony_framing import HarmonyTrigger
from interlock.parsers.harmony_vocabulary import Characters, TokenText, vocabulary


@each(
    ("token", "meaning"),
    [
        (0, "!"),
        (127, b"\xc3"),
        (200_006, HarmonyTrigger.START),
        (200_002, HarmonyTrigger.RETURN),
        (199_999, HarmonyTrigger.RETURN),
        (200_013, HarmonyTrigger.STRAY),
        (201_088, HarmonyTrigger.STRAY),
        (300_000, HarmonyTrigger.STRAY),
        (-1, HarmonyTrigger.STRAY),
        (2**40, HarmonyTrigger.STRAY),
    ],
)
def test_an_id_has_a_meaning(token: int, meaning: object):
    assert vocabulary().read(token) == meaning
    assert vocabulary().read(token) == meaning


def test_ids_without_a_meaning_are_not_remembered():
    before = len(vocabulary()._cache)
    vocabulary().read(12_345_678)
    assert len(vocabulary()._cache) == before


def test_there_is_one_vocabulary():
    assert vocabulary() is vocabulary()


def test_a_missing_vocabulary_is_an_error_that_names_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai_harmony", None)
    with pytest.raises(ModuleNotFoundError, match=r"^the format 'harmony' needs its vocabulary: pip install oss-harmony$"):
        vocabulary.__wrapped__()


def test_a_character_comes_with_all_of_its_tokens():
    characters = Characters()
    first, second = {"token": "a"}, {"token": "b"}
    assert not characters.feed(b"x\xe2\x82", first)
    assert characters.pending
    assert characters.feed(b"\xac", second)
    assert characters.take() == TokenText("x€", [first, second], 2)
    assert not characters.pending
