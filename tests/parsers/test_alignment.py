from interlock.parsers.alignment import Alignment

LE, T, IN, BARE, NONE = (
    {"token": "le"},
    {"token": "</think>"},
    {"token": "ignored", "bytes": list("é".encode())},
    {"token": "!\n"},
    {"token": None},
)


def aligned(*entries):
    alignment = Alignment()
    for entry in entries:
        alignment.add(entry)
    return alignment


def test_a_text_has_the_tokens_that_say_it():
    alignment = aligned(LE, T, IN, BARE)
    assert alignment.find("le") == [LE]
    assert alignment.find("é!\n") == [IN, BARE]
    assert alignment.find("é") == []


def test_a_token_belongs_to_the_text_in_which_it_ends():
    alignment = aligned(LE, IN, BARE)
    assert alignment.find("leé!") == [LE, IN]
    assert alignment.find("\n") == [BARE]


def test_a_text_that_no_token_says_has_none_and_takes_none():
    alignment = aligned(LE, NONE)
    assert alignment.find("other") == []
    assert alignment.find("le") == [LE]
