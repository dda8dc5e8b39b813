"""Keys are held as digests, and name tenants where there are several."""

import logging

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


def tenants(keys, *names):
    return [keys.tenant(f"Bearer {name}") for name in names]


def test_a_file_has_keys_and_their_tenants_and_is_read_again(tmp_path, caplog) -> None:
    file = tmp_path / "keys"
    file.write_text("# one key for all\n\nold\n")
    keys = Keys.of_file(file)
    assert (keys.count, tenants(keys, "old", "new", "a")) == (1, ["", None, None])
    file.write_text("old\nnew\nacme a\nacme  b\nother\tc\n")
    with caplog.at_level(logging.INFO, "interlock"):
        assert keys.reload()
        assert keys.reload(logging.DEBUG)
    assert (keys.count, tenants(keys, "old", "new", "a", "b", "c")) == (5, ["", "", "acme", "acme", "other"])
    assert caplog.messages == [f"{file}: API keys: 5, tenants: 3"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("# none\n", "the file has no key"),
        ("acme sesame open\n", "line 1 is not a key, or the name of a tenant and its key"),
        ("a\nac/me sesame\n", "line 2 is not a key, or the name of a tenant and its key"),
        ("sesa\x01me\n", "line 1: the key has control characters, which a header cannot contain"),
        ("acme sesame\nother sesame\n", "line 2 has the key of another tenant"),
    ],
)
def test_a_file_that_is_invalid_changes_no_keys(text, error, tmp_path, caplog) -> None:
    file = tmp_path / "keys"
    file.write_text("acme a\n")
    keys = Keys.of_file(file)
    file.write_text(text)
    assert not keys.reload()
    assert (tenants(keys, "a"), caplog.messages) == (["acme"], [f"the API keys stay as they are: {file}: {error}"])
    assert "sesame" not in caplog.text
    with pytest.raises(ValueError, match=error):
        Keys.of_file(file)
