"""An upstream of Chat Completions that accepts only requests which the strictest services accept, as Mistral's."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from live.chunk_shapes import chunk
from live.upstream import Reply, ScriptedUpstream, failure, serve_upstream, stream
from live.watched import serving

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[a-zA-Z0-9]{9}")
GOOD = stream(chunk({"role": "assistant", "content": "Yes."}), chunk({}, "stop"))


def faults(body: Mapping[str, Any]) -> Sequence[str]:
    """Return what a strict service refuses in the body of a request."""
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    ids = [*(call["id"] for call in calls), *(message["tool_call_id"] for message in messages if message["role"] == "tool")]
    found = [f"two tools have the name {name}" for name in {*names} if names.count(name) > 1]
    called = [call["function"]["name"] for call in calls]
    found += [f"the name {name!r}" for name in (*names, *called) if not NAME.fullmatch(name)]
    found += [f"the id {call_id!r}" for call_id in ids if not CALL_ID.fullmatch(call_id)]
    open_ids: list[str] = []
    for message in messages:
        if message["role"] != "tool":
            open_ids = [call["id"] for call in message.get("tool_calls", ())]
        elif message["tool_call_id"] not in open_ids and message["tool_call_id"] in {call["id"] for call in calls}:
            found.append(f"the output {message['tool_call_id']} does not follow its call")
    return found


class StrictChat(ScriptedUpstream):
    """Answers each valid request with a text, and any other with the status 422."""

    async def _reply(self, reply: Reply, receive: Any, send: Any) -> None:
        body: Any = self.requests.pop().body  # not kept: a campaign sends many
        found = [] if body is None else faults(body)
        await super()._reply(failure(422, {"error": {"message": "; ".join(found)}}) if found else reply, receive, send)


@contextmanager
def serving_gateway() -> Generator[tuple[str, int]]:
    """Run a gateway in front of a strict upstream; yield its URL and the number of its process."""
    with serve_upstream(StrictChat([GOOD])) as upstream, tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(f'[[upstream]]\nurl = "{upstream}"\nshort_call_ids = true\n')
        config.flush()
        with serving("--config", config.name) as served:
            yield served
