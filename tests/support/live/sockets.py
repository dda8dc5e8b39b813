"""A client of WebSocket mode, which speaks JSON."""

import json
from contextlib import contextmanager

from websockets.sync.client import connect

PATIENCE = 60
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class SocketClient:
    """A connection, with all frames that it has received; `request` has what its requests share."""

    def __init__(self, socket, request):
        self.socket, self.request, self.frames = socket, {"type": "response.create", **request}, []

    def send(self, frame, **fields):
        self.socket.send(frame if isinstance(frame, str | bytes) else json.dumps({**frame, **fields}))

    def receive(self):
        self.frames.append(json.loads(self.socket.recv(timeout=PATIENCE)))
        return self.frames[-1]

    def until(self, *kinds):
        """Receive frames up to one of these types, and return it."""
        while self.receive()["type"] not in kinds:
            pass
        return self.frames[-1]

    def turn(self):
        """The frames up to the end of a response, or the one frame that is an error."""
        start = len(self.frames)
        self.until(*ENDS)
        return self.frames[start:]

    def ends(self, count):
        """The terminal frames of the next responses."""
        return [self.until(*ENDS) for _ in range(count)]

    def ask(self, frame=None, **fields):
        """Send a request, and return the frames of its turn."""
        self.send(self.request if frame is None else frame, **fields)
        return self.turn()


@contextmanager
def socket_client(url, request=(), kind=SocketClient, **options):
    """Connect to a server, to its version of the API or to its root."""
    url = url.replace("http", "ws", 1).removesuffix("/v1")
    with connect(f"{url}/v1/responses", open_timeout=PATIENCE, **options) as socket:
        yield kind(socket, dict(request))
