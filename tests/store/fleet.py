"""Several server processes over one store, and clients that ask any of them; processes may be killed meanwhile."""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from attrs import define, field

BODY = {"model": "interlock-embedded", "background": True}
WORDS = "Say something long about the rivers of Europe, one after another"


class Server:
    """One server process."""

    def __init__(self, store, rate):
        self.command = [str(Path(sys.executable).with_name("interlock")), "serve", "--port", "0", "--store", store]
        self.command += ["--rate", str(rate), "--max-streams", "400"]
        self.start()

    def start(self):
        # What it logs goes to a file: a pipe that nobody reads would stop it.
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is read while the process runs
        self.process = subprocess.Popen(self.command, stderr=self.log)  # noqa: S603 - our own command
        self.url = ""
        while not self.url:
            time.sleep(0.05)
            self.log.seek(0)
            self.url = self.log.readline().partition(" at ")[2].strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        self.log.close()


@define
class Reading:
    """What one reader has read of a response, from wherever it was let in."""

    response_id: str
    frames: list = field(factory=list)
    resumed: int = 0


@define
class Fleet:
    """Server processes over one store."""

    servers: list
    chance: random.Random
    ends: Counter = field(factory=Counter)

    def client(self):
        return httpx.Client(timeout=60)

    def any(self):
        return self.chance.choice([server for server in self.servers if server.url]).url

    def begin(self):
        """Begin a response on any server that takes it; what was acknowledged is returned."""
        with self.client() as client:
            while True:
                try:
                    answer = client.post(f"{self.any()}/responses", json={**BODY, "input": WORDS})
                except httpx.HTTPError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 200:
                    return answer.json()["id"]
                time.sleep(0.05)

    def read(self, reading, deadline):
        """Read a response to its end, from any server, and go on on another where one has gone."""
        with self.client() as client:
            while time.monotonic() < deadline:
                query = {"stream": "true"} | ({"starting_after": len(reading.frames) - 1} if reading.frames else {})
                try:
                    with client.stream("GET", f"{self.any()}/responses/{reading.response_id}", params=query) as answer:
                        if answer.status_code == 200 and self._take(reading, answer):
                            return reading
                except httpx.HTTPError:
                    pass
                reading.resumed += 1
                time.sleep(0.05)
        raise AssertionError(f"{reading.response_id}: no end after {len(reading.frames)} events")

    def _take(self, reading, answer):
        rest = b""
        for piece in answer.iter_bytes():
            *whole, rest = (rest + piece).split(b"\n\n")
            for frame in whole:
                if frame == b"data: [DONE]":
                    return True
                reading.frames.append(frame + b"\n\n")
            if self.chance.random() < 0.002:
                return False  # a client that goes away, and comes back to another server
        return False

    def cancel(self, response_id):
        with self.client() as client:
            for _ in range(400):
                try:
                    if client.post(f"{self.any()}/responses/{response_id}/cancel").status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(0.05)
