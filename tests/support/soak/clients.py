"""What clients do to a server for hours: they ask in every way, go on, leave, dawdle, cancel and talk nonsense.

Each function is one visit of one client, and asserts that whatever it was given is legal and complete.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from random import Random

import httpx
from attrs import frozen
from soak.server import BREAK, CHATTER
from websockets.asyncio.client import connect

from interlock.testing import assert_legal

MODEL = "interlock-embedded"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ENDS = ("response.completed", "response.incomplete", "response.failed")
PATIENCE = 120


@frozen
class Place:
    """A server, and the chance that decides what is asked of it.

    Args:
        url: Where it is.
        client: Speaks to it.
        chance: Decides.
    """

    url: str
    client: httpx.AsyncClient
    chance: Random

    def body(self, words: str = "Tell me about trains", **fields: object) -> dict[str, object]:
        """Return the body of a request."""
        return {"model": MODEL, "input": f"{words} {self.chance.randrange(10**9)}", **fields}

    async def post(self, body: Mapping[str, object]) -> dict[str, object]:
        """Send a request that is answered in one piece, and return the response."""
        answer = await self.client.post(f"{self.url}/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def stream(self, body: Mapping[str, object]) -> dict[str, object]:
        """Send a request, judge its stream, and return the response of its end."""
        answer = await self.client.post(f"{self.url}/v1/responses", json={**body, "stream": True})
        return _judged(answer)


def _judged(answer: httpx.Response) -> dict[str, object]:
    assert answer.status_code == 200, answer.text
    assert_legal(answer.content, strict=True)
    return dict(json.loads(answer.content.split(b"\ndata: ")[-2].partition(b"\n")[0])["response"])


async def asks(at: Place) -> None:
    """Ask for a stream, with and without storing."""
    response = await at.stream(at.body(store=at.chance.random() < 0.5))
    assert response["status"] == "completed"


async def asks_for_one_piece(at: Place) -> None:
    """Ask for an answer in one piece."""
    assert (await at.post(at.body(store=False)))["status"] == "completed"


async def talks(at: Place) -> None:
    """Go on from response to response, and delete the last one."""
    previous: object = None
    for _ in range(4):
        response = await at.stream(at.body(previous_response_id=previous))
        previous = response["id"]
    answer = await at.client.delete(f"{at.url}/v1/responses/{previous}")
    assert answer.json()["deleted"] is True


async def calls(at: Place) -> None:
    """Have a function called, and say what came of it."""
    called = await at.stream(at.body("Get the weather of: Berlin", tools=[WEATHER]))
    output = called["output"]
    assert isinstance(output, list)
    (call,) = [item for item in output if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    answered = await at.stream({"model": MODEL, "input": [result], "tools": [WEATHER], "previous_response_id": called["id"]})
    assert answered["status"] == "completed"


async def leaves(at: Place) -> None:
    """Leave in the middle of a stream."""
    body = at.body("Tell a long story about trains " * 20, stream=True, store=False)
    async with at.client.stream("POST", f"{at.url}/v1/responses", json=body) as answer:
        pieces = answer.aiter_raw()
        for _ in range(at.chance.randrange(4)):
            await anext(pieces, None)


async def dawdles(at: Place) -> None:
    """Read a long stream at a kilobyte a second, and then either leave or read all of it."""
    words = f"{at.chance.randrange(10**9)} Tell a story, and {CHATTER}"
    body = {"model": MODEL, "input": words, "stream": True, "store": at.chance.random() < 0.5}
    async with at.client.stream("POST", f"{at.url}/v1/responses", json=body) as answer:
        pieces, read = answer.aiter_raw(1024), bytearray()
        for _ in range(3):
            read += await anext(pieces)
            await asyncio.sleep(1)
        if at.chance.random() < 0.5:
            return
        async for piece in pieces:
            read += piece
    assert_legal(bytes(read), strict=True)


async def breaks(at: Place) -> None:
    """Make the engine break; the response fails, legally."""
    response = await at.stream({"model": MODEL, "input": f"Hello and {BREAK}", "store": False})
    assert (response["status"], response["error"]) == ("failed", {"code": "server_error", "message": "It was told to break."})


async def reads_again(at: Place) -> None:
    """Begin a response in the background, and read it from somewhere to its end."""
    background = await at.post(at.body(background=True))
    url = f"{at.url}/v1/responses/{background['id']}"
    whole = await at.client.get(url, params={"stream": "true"})
    assert _judged(whole)["status"] == "completed"
    rest = await at.client.get(url, params={"stream": "true", "starting_after": "3"})
    assert whole.content.endswith(rest.content)


async def cancels(at: Place) -> None:
    """Begin a response in the background, and cancel it."""
    background = await at.post(at.body("Tell a long story about trains " * 20, background=True))
    answer = await at.client.post(f"{at.url}/v1/responses/{background['id']}/cancel")
    assert answer.json()["status"] in {"cancelled", "completed"}, answer.text


async def talks_nonsense(at: Place) -> None:
    """Send what is no request."""
    sent = at.chance.choice((b"{", b"[]", b'{"model": 1}', b'{"model": "interlock-embedded"}', b"\xff"))
    headers = {"content-type": "application/json"}
    answer = await at.client.post(f"{at.url}/v1/responses", content=sent, headers=headers)
    assert [*answer.json()["error"]] == ["message", "type", "param", "code"]
    assert answer.status_code == 400


async def talks_in_lanes(at: Place) -> None:
    """Hold two conversations over one WebSocket, and leave while a third begins."""
    async with connect(at.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=PATIENCE) as socket:
        for _ in range(2):
            for lane in ("a", "b"):
                await socket.send(json.dumps({"type": "response.create", "stream_id": lane, **at.body(store=False)}))
        frames = {"a": [dict[str, object]()][:0], "b": [dict[str, object]()][:0]}
        ended = 0
        while ended < 4:
            frame = json.loads(await socket.recv())
            frames[frame.pop("stream_id")].append(frame)
            ended += frame["type"] in ENDS
        for received in frames.values():
            last = [place for place, frame in enumerate(received, 1) if frame["type"] in ENDS]
            for start, end in zip([0, *last], last, strict=False):
                assert_legal(received[start:end], strict=True)
        await socket.send(json.dumps({"type": "response.create", **at.body()}))


VISITS: tuple[tuple[Callable[[Place], Awaitable[None]], int], ...] = (
    (asks, 6),
    (asks_for_one_piece, 2),
    (talks, 2),
    (calls, 3),
    (leaves, 4),
    (dawdles, 2),
    (breaks, 2),
    (reads_again, 3),
    (cancels, 2),
    (talks_nonsense, 2),
    (talks_in_lanes, 2),
)
"""What clients do, and how often compared with the others."""
