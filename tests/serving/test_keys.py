"""Keys are held as digests, and name tenants where there are several."""

import pytest

from interlock.serving.requests.api_keys import Keys


def test_with_one_key_or_none_there_is_one_tenant() -> None:
    assert [Keys().tenant(""), Keys().tenant("Bearer anything")] == ["", ""]
    assert [Keys.of(["k", "k"]).tenant(header) for header in ("Bearer k", "bearer k ", "Bearer j", "Basic k", "")] == [
        *("", "", None, None, None)
    ]


def test_with_several_keys_each_has_a_tenant_of_its_own_the_same_in_every_process() -> None:
    keys = Keys.of(["one", "two"])
    tenants = [keys.tenant(f"Bearer {key}") for key in ("one", "two", "three")]
    assert tenants == ["c6f5e8c596d8e304", "031f42d81e585431", None]
    assert Keys.of(["three", "two"]).tenant("Bearer two") == tenants[1]


def test_keys_may_share_what_they_store() -> None:
    assert [Keys.of(["one", "two"], shared=True).tenant(f"Bearer {key}") for key in ("one", "two", "three")] == ["", "", None]


def test_a_key_is_the_same_tenant_in_whichever_encoding_it_comes() -> None:
    keys = Keys.of(["s\xe9same", "other"])
    sent = "s\xe9same".encode().decode("latin-1")
    assert keys.tenant("Bearer s\xe9same") == keys.tenant(f"Bearer {sent}") != keys.tenant("Bearer other")


def test_each_passed_key_is_a_tenant_of_its_own() -> None:
    keys = Keys.of([], passed=True)
    tenants = [keys.tenant(header) for header in ("Bearer one", "bearer  one ", "Bearer two", "Basic one", "Bearer ", "")]
    assert tenants == ["c6f5e8c596d8e304", "c6f5e8c596d8e304", "031f42d81e585431", keys.tenant_of_key("Basic one"), "", ""]
    assert len({*tenants}) == 4


def test_passed_keys_are_one_tenant_if_they_share_or_if_the_server_has_a_key() -> None:
    assert [Keys.of([], passed=True, shared=True), Keys.of(["k"], passed=True)] == [Keys(), Keys.of(["k"])]


def test_keys_are_not_held_and_not_shown() -> None:
    assert "secret" not in repr(Keys.of(["secret", "another"]))
    assert b"secret" not in b"".join(digest for digest, _ in Keys.of(["secret"]).tenants)


def test_a_key_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ValueError, match="begins or ends with white space"):
        Keys.of(["right", " wrong"])
