"""Many requests at once to servers with one store: each is answered, and each answered response is stored.

`make test` sends few requests to two servers in threads, and many to four processes if INTERLOCK_STORE_RUNS is set.
"""

import asyncio
import os
import random
import tempfile
from contextlib import ExitStack

import pytest
from store_fleet import KINDS, SHARED, ask_at_once, create_at_once, fleet_of, stream_at_once

from interlock.judges import judge
from interlock.serving.build import build
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.serving.store import open_store

ALL = "INTERLOCK_STORE_RUNS" in os.environ
FOREGROUND, CREATED, STREAMED = (400, 120, 200) if ALL else (40, 12, 10)
SERVERS = 4 if ALL else 2


@pytest.fixture(scope="module", params=KINDS)
def urls(request):
    """The URLs of servers with one store of a kind."""
    kind = request.param
    with tempfile.TemporaryDirectory(prefix="interlock-store-") as folder, KINDS[kind](folder) as store:
        count = SERVERS if kind in SHARED else 1
        if ALL:
            with fleet_of(count, random.Random(1), store=store.url) as fleet:  # noqa: S311 - repeats its choices
                yield [server.url for server in fleet.servers]
        else:
            with ExitStack() as servers:
                apps = [build(Settings(), EmbeddedEngine(), store=open_store(store.url)) for _ in range(count)]
                yield [f"{servers.enter_context(ServerThread(app))}/v1" for app in apps]


def test_every_response_of_many_requests_at_once_is_stored(urls) -> None:
    answers = asyncio.run(ask_at_once(urls, FOREGROUND))
    assert [created.body.get("status") for created, _ in answers] == ["completed"] * FOREGROUND
    assert [fetched.body for _, fetched in answers] == [created.body for created, _ in answers]


def test_many_background_responses_can_be_created_at_once(urls) -> None:
    answers = asyncio.run(create_at_once(urls, CREATED))
    assert [answer.status for answer in answers] == [200] * CREATED


def test_all_readers_of_many_streams_receive_the_same_events_to_a_legal_end(urls) -> None:
    streams = asyncio.run(stream_at_once(urls, STREAMED))
    for readers, fetched in streams:
        first, *others = [reader.frames for reader in readers]
        assert others == [first] * len(others)
        assert judge(first).findings == {}
        assert fetched.body["status"] == "completed"
        assert readers[0].body["response"] == fetched.body
