import asyncio
import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.serving.responses.sealing import SHORTEST, SLICE, Binding, Envelope, SealError, SealingKey, SealingKeys

OLD, NEW = SealingKey(bytes(32)), SealingKey(bytes(range(32)))
ENVELOPE = Envelope(SealingKeys(OLD))
REASONING = Binding("reasoning", "m", "alice")
CHANGED = "it was changed, or belongs to another type of item, another model or another API key"


def open_sealed(text, binding=REASONING, envelope=ENVELOPE):
    return asyncio.run(envelope.open(binding, text))


async def refusals(texts):
    """How many of the texts cannot be opened."""
    count = 0
    for text in texts:
        try:
            await ENVELOPE.open(REASONING, text)
        except SealError:
            count += 1
    return count


@given(st.binary(), st.builds(Binding, st.text(), st.text(), st.text()))
def test_what_is_sealed_opens_as_it_was(content, binding):
    assert open_sealed(ENVELOPE.seal(binding, content), binding) == content


def test_a_content_is_sealed_differently_each_time_and_shows_nothing_but_its_length():
    first, second = (base64.b64decode(ENVELOPE.seal(REASONING, b"a secret")) for _ in range(2))
    assert len(first) == len(second) == SHORTEST + len(b"a secret")
    assert first[:9] == second[:9] == b"\x01" + OLD.id
    assert first[9:21] != second[9:21]
    assert b"secret" not in first


def test_after_a_rotation_the_new_key_seals_and_the_old_one_opens():
    before, rotated, over = ENVELOPE, Envelope(SealingKeys(NEW, (OLD,))), Envelope(SealingKeys(NEW))
    old, new = before.seal(REASONING, b"old"), rotated.seal(REASONING, b"new")
    assert (open_sealed(old, envelope=rotated), open_sealed(new, envelope=rotated), open_sealed(new, envelope=over)) == (
        b"old",
        b"new",
        b"new",
    )
    with pytest.raises(SealError, match=r"^it was sealed with a key that this server does not have$"):
        open_sealed(old, envelope=over)


@pytest.mark.parametrize(
    "other",
    [
        Binding("compaction", "m", "alice"),
        Binding("reasoning", "n", "alice"),
        Binding("reasoning", "m", "bob"),
        Binding("reasoning", "m"),
        Binding("reasoning", "malice", ""),
    ],
)
def test_a_content_of_another_kind_model_or_tenant_is_refused(other):
    with pytest.raises(SealError, match=f"^{CHANGED}$"):
        open_sealed(ENVELOPE.seal(REASONING, b"content"), other)


def test_every_flipped_bit_is_noticed():
    whole = base64.b64decode(ENVELOPE.seal(REASONING, b"content"))
    number, bits = int.from_bytes(whole), range(len(whole) * 8)
    flipped = [(number ^ 1 << bit).to_bytes(len(whole)) for bit in bits]
    assert asyncio.run(refusals(base64.b64encode(each).decode() for each in flipped)) == len(bits)


def test_every_character_that_is_changed_or_missing_is_noticed():
    sealed = ENVELOPE.seal(REASONING, b"content")
    assert sealed.endswith("=")
    others = (*"AQgw_-+/=", "\n", "é", "")
    changed = {sealed[:place] + other + sealed[place + 1 :] for place in range(len(sealed)) for other in others} - {sealed}
    assert asyncio.run(refusals(changed)) == len(changed)


@pytest.mark.parametrize("length", range(SHORTEST))
def test_what_is_too_short_is_refused(length):
    start = base64.b64decode(ENVELOPE.seal(REASONING, b""))[:length]
    with pytest.raises(SealError, match=r"^it was not made by Interlock, or is truncated$"):
        open_sealed(base64.b64encode(start).decode())


def test_what_another_service_sealed_is_refused():
    with pytest.raises(SealError, match=r"^it was not made by Interlock, or is truncated$"):
        open_sealed("gAAAAABo" + "A" * 100)


def test_a_huge_content_is_opened_with_others_having_their_turn():
    sealed = ENVELOPE.seal(REASONING, bytes(3_000_000))
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run():
        beside = asyncio.create_task(others())
        content = await ENVELOPE.open(REASONING, sealed)
        beside.cancel()
        return content

    assert asyncio.run(run()) == bytes(3_000_000)
    assert turns >= len(sealed) // SLICE
