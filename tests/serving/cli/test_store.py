"""`interlock store` shows the contents of a store, sweeps and migrates it."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from interlock.serving.cli.commands import app
from interlock.serving.store import StoredResponse, open_store


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'store.db'}"


def call(*arguments):
    result = CliRunner().invoke(app, ["store", *arguments])
    return result.exit_code, result.output


def fill(url, scenario):
    async def run():
        store = open_store(url)
        await scenario(store)
        await store.close()

    asyncio.run(run())


def ended(number):
    return StoredResponse({"id": f"resp_{number}", "output": []}, ())


def test_info_counts_the_contents_of_a_store(url) -> None:
    async def scenario(store):
        await store.put("", ended(1))
        lease = await store.enqueue("", ended(2), "server-7")
        await store.append(lease, 0, [b"event"])

    fill(url, scenario)
    code, output = call("info", "--store", url)
    lines = output.splitlines()
    assert code == 0
    assert lines[0].startswith("SQLite 3.")
    assert lines[1:] == [
        "responses: 1 ended, 1 running",
        "conversations: 0, items: 0, events: 1",
        "resp_2 runs on server-7 (lease 1)",
    ]


def test_migrate_creates_the_store_in_an_empty_database(url) -> None:
    Path(url.partition(":")[2]).touch()
    assert [call("migrate", "--store", url) for _ in range(2)] == [
        (0, "created with layout 2\n"),
        (0, "layout 2 is up to date\n"),
    ]


def test_a_store_that_does_not_exist_is_not_created(url) -> None:
    path = url.partition(":")[2]
    for command in (["info"], ["sweep"], ["migrate"]):
        code, output = call(*command, "--store", url)
        assert (code, output.split()) == (2, f"interlock: {path} does not exist.".split())
        assert not Path(path).exists()


def test_info_shows_an_empty_store(url) -> None:
    fill(url, lambda store: store.get("", "resp_1"))
    assert call("info", "--store", url)[1].splitlines()[1:] == ["responses: none", "conversations: 0, items: 0, events: 0"]


def test_a_store_is_swept_and_migrated(url, monkeypatch) -> None:
    fill(url, lambda store: store.put("", ended(1)))
    assert call("sweep", "--store", url) == (0, "deleted 0 expired responses and 0 event logs\n")
    assert call("sweep", "--store", f"{url}?ttl=0") == (0, "deleted 1 expired responses and 0 event logs\n")
    monkeypatch.setenv("INTERLOCK_STORE", url)
    assert call("migrate") == (0, "layout 2 is up to date\n")


def test_a_store_that_cannot_be_used_ends_the_command(tmp_path) -> None:
    code, output = call("info", "--store", "mongodb://db")
    assert (code, output.startswith("interlock: mongodb://db names no store")) == (2, True)
    code, output = call("info", "--store", f"sqlite:{tmp_path / 'none' / 'store.db'}")
    assert (code, output.split()[-3:]) == (2, ["does", "not", "exist."])
