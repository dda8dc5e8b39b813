"""A URL names a store, and a wrong URL is refused with a helpful message."""

import asyncio
import sys

import pytest
from each import each

from interlock.serving.store import MemoryStore, StoredResponse, StoreUnusable, open_store
from interlock.serving.store.sqlite import SqliteStore


def test_a_store_in_memory_is_bounded_as_its_url_says() -> None:
    store = open_store("memory:?max_bytes=2m&max_responses=5&ttl=12h")
    assert isinstance(store, MemoryStore)
    assert (store.max_bytes, store.max_responses, store.ttl) == (2 * 2**20, 5, 43_200)
    assert open_store("memory:").ttl == 30 * 86_400
    assert open_store("memory:?ttl=never").ttl is open_store().ttl is None


def test_a_store_in_a_file_is_set_up_as_its_url_says(tmp_path) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:{path}?synchronous=full&busy=1.5&ttl=never&logs=1d&max_bytes=1g")
    assert isinstance(store, SqliteStore)
    settings = store.path, store.synchronous, store.busy, store.ttl, store.logs, store.max_bytes
    assert settings == (str(path), "full", 1.5, None, 86_400, 2**30)
    assert open_store("sqlite:store.db").synchronous == open_store("sqlite:store.db?synchronous=normal").synchronous == "normal"

    async def scenario():
        await store.put("", StoredResponse({"id": "resp_1", "output": []}, ()))
        await store.close()

    asyncio.run(scenario())
    assert path.exists()


@each(
    ("url", "message"),
    [
        (
            "mongodb://me:secret@db",
            "mongodb://…@db names no store; a store is memory:, sqlite:PATH or postgresql://HOST/DATABASE.",
        ),
        ("store.db", "store.db names no store"),
        ("memory:store.db", "memory: takes no path."),
        ("sqlite:", "sqlite: needs the path of a file, such as sqlite:responses.db"),
        ("sqlite:///tmp/store.db", "sqlite: needs the path of a file"),
        ("sqlite:store.db?ttl=soon", "sqlite: cannot take ttl=soon: a duration is like 900, 15m, 12h, 30d or never."),
        ("sqlite:store.db?ttl=3y", "sqlite: cannot take ttl=3y: a duration is like 900, 15m, 12h, 30d or never."),
        ("sqlite:store.db?busy=never", "sqlite: cannot take busy=never: a duration is like 0.5, 90s or 15m."),
        ("sqlite:store.db?synchronous=off", "sqlite: cannot take synchronous=off: it is normal or full."),
        ("sqlite:store.db?max_bytes=-1", "sqlite: cannot take max_bytes=-1: a size is like 4096, 64k, 256m or 2g."),
        *(
            (
                f"memory:?max_responses={value}",
                f"memory: cannot take max_responses={value[:40]}: it is a whole number from 1 on.",
            )
            for value in ("0", "-5", "2.5", "many", "", "²", "9" * 5000)
        ),
        *(
            (f"{scheme}://db/0", f"{scheme}: is not supported: use postgresql://HOST/DATABASE, or sqlite:PATH on one host.")
            for scheme in ("redis", "rediss", "valkey")
        ),
        ("postgresql:store", "postgresql: needs a server, such as postgresql://127.0.0.1/interlock."),
        ("postgres://db?ttl=soon", "postgres: cannot take ttl=soon: a duration is like 900, 15m, 12h, 30d or never."),
        ("memory:?color=red", "memory: takes ttl, max_bytes, max_responses, and no parameter 'color'."),
    ],
)
def test_a_url_that_names_no_store_is_refused(url, message) -> None:
    with pytest.raises(StoreUnusable) as refused:
        open_store(url)
    assert str(refused.value).startswith(message)


@each("scheme", ["postgresql", "postgres", "redis", "rediss", "valkey", "mongodb"])
@each("password", ["sec/ret", "sec#ret", "sec?ret", "sec@ret", "sec%ret", "1/ret@sec"])
def test_a_password_with_an_unescaped_character_is_refused_and_not_shown(scheme, password) -> None:
    with pytest.raises(StoreUnusable) as refused:
        open_store(f"{scheme}://me:{password}@db/0")
    assert not {part for part in ("sec", "ret") if part in str(refused.value)}


@each("host", ["h:abc", "h:65536", "[::1", "[::g]:1", "::1", "a:1:2"])
def test_a_wrong_host_or_port_is_refused(host) -> None:
    with pytest.raises(StoreUnusable, match="postgresql: has a wrong host or port"):
        open_store(f"postgresql://{host}/0")
    open_store("postgresql://me:p%2F%40w@[::1]:6000/0")


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("sqlite:store.db", "apsw", "serve"),
        ("memory:", "apsw", "serve"),
        ("postgresql://db/interlock", "psycopg", "postgres"),
    ],
)
def test_a_store_whose_package_is_not_installed_says_how_to_install_it(monkeypatch, url, package, extra) -> None:
    modules = tuple(f"interlock.serving.store.{module}" for module in ("sqlite", "postgres"))
    for name in [name for name in sys.modules if name.startswith((*modules, f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreUnusable) as refused:
        open_store(url)
    install = f"pip install 'interlock[{extra}]' (in a checkout, '.[{extra}]')"
    assert str(refused.value) == f"This store needs {package}: {install}"
