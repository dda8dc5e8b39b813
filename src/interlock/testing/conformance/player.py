"""Runs the cases against a server, and judges the answers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final

from attrs import define, field, frozen

from interlock.events.json import as_text, dumps, is_array, is_object, members, parse
from interlock.events.sse import SseDecoder
from interlock.events.stream import TERMINAL, Completed
from interlock.judges import AnyJudge, Severity, Verdict
from interlock.judges.contents import check_fields
from interlock.serving.cli.options import ExchangeError, SlowAnswerError, exchange, printable
from interlock.testing.conformance.apis import PATHS, Body, TestedApi, parse_arguments, read_stream, read_whole, translate
from interlock.testing.conformance.cases import ANY, CASES, HELLO, OPEN, Case, CaseStep, Reply, Result

_OK: Final = 200
_REFUSALS: Final = range(400, 500)
_NOT_SEEN: Final = ("compaction_failed", "context_length_exceeded")
"""The codes of errors that the model causes, or its small context."""
_NO_ACCESS: Final = (401, 403, 502, 504)
_WAIT: Final = 0.5
"""The seconds between two requests for a response in progress."""
_MAX_TOKENS: Final = 400
"""The most tokens of an answer, so that a case costs little."""
_NOTE_LENGTH: Final = 160
"""The most characters of a note."""
_SAME_CONTENT: Final[Mapping[TestedApi, str]] = {"responses": "R19", "messages": "M13", "chat": "C9"}
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b": ")
"""What an event of a stream begins with, or a comment."""
_EVENT_STREAM: Final = "text/event-stream"


@frozen
class CaseResult:
    """The result of a case, a note that explains it, and how often each rule was broken and each deviation was found."""

    group: str
    name: str
    result: Result
    note: str = ""
    errors: Mapping[str, int] = field(factory=dict[str, int])
    deviations: Mapping[str, int] = field(factory=dict[str, int])


class CaseEnd(Exception):  # noqa: N818 - it ends a case, whose result may be good
    """A case ends with this result; the message is its note."""

    def __init__(self, result: Result, note: str) -> None:
        super().__init__(note)
        self.result: Result = result


class NoAccessError(Exception):
    """The server cannot be reached, requires a key, or is a gateway without an answer of its upstream."""


@define
class Player:
    """Runs the cases of an API against the server at a URL; `timeout` is the most seconds for one answer."""

    url: str
    api: TestedApi
    model: str
    headers: Mapping[str, str]
    timeout: float
    _results: dict[str, Result] = field(factory=dict[str, Result], init=False)
    """The results of the cases so far, without the verdicts on their streams."""
    _verdicts: list[Verdict] = field(factory=list[Verdict], init=False)
    """The verdicts on the streams of the current case."""

    def play(self, topics: Mapping[str, Sequence[Case]] = CASES) -> Iterator[CaseResult]:
        """Run the cases of each topic, and yield their results.

        Raises:
            NoAccessError: The server cannot be reached, requires a key, or is a gateway without an answer of its upstream.
        """
        for group, cases in topics.items():
            for case in cases:
                if self.api in case.apis:
                    yield self._play(case, group)

    def ask(self, body: Body) -> tuple[Reply, Verdict]:
        """Send a request of the API for a stream, and return the answer and the verdict on it.

        Raises:
            CaseEnd: The answer is not a stream.
            ExchangeError: There is no whole answer.
        """
        reply = self._stream(body)
        return reply, self._verdicts.pop()

    def _play(self, case: Case, group: str) -> CaseResult:
        needed = self._results.get(case.needs, "passes")
        if needed != "passes":
            return CaseResult(group, case.name, "not served" if needed == "not served" else "not seen", f"needs: {case.needs}")
        self._verdicts = []
        result: Result = "passes"
        note = ""
        try:
            if case.steps:
                self._take_steps(case.steps)
            else:
                ways = {"": self._compare, "socket": self._use_socket, "disconnect": self._disconnect, "resume": self._resume}
                ways[case.way](case)
        except CaseEnd as end:
            result, note = end.result, str(end)
        except ExchangeError as error:
            if not self._results:
                raise NoAccessError(str(error)) from error
            result, note = "not seen" if isinstance(error, SlowAnswerError) else "fails", str(error)
        self._results[case.name] = result
        errors, deviations = self._count("error"), self._count("deviation")
        if errors and result != "fails":
            result, note = "fails", _first_error(self._verdicts)
        return CaseResult(group, case.name, result, " ".join(note.split())[:_NOTE_LENGTH], errors, deviations)

    def _count(self, severity: Severity) -> Mapping[str, int]:
        counts = Counter[str]()
        for verdict in self._verdicts:
            for finding, times in verdict.findings.items():
                if finding.severity == severity:
                    counts[finding.deviation or finding.rule] += times
        return counts

    def _compare(self, case: Case) -> None:
        """Ask for a stream and for a whole answer; if they differ, ask again, because a model may answer differently."""
        body = self._request(case.fields)
        replies = [self._stream(body), self._whole(body)]
        for reply in replies:
            result, note = case.check(reply) if reply.reason != "error" else ("fails", _ending_error(reply.data))
            if result != "passes":
                raise CaseEnd(result, note)
        first = [self._content(reply) for reply in replies]
        if first[0] != first[1] and first == [self._content(self._stream(body)), self._content(self._whole(body))]:
            names = [
                name for name, one, other in zip(("text", "reasoning", "calls", "reason"), *first, strict=True) if one != other
            ]
            raise CaseEnd("fails", f"{_SAME_CONTENT[self.api]}: stream and whole answer differ in {', '.join(names)}")

    def _request(self, fields: Body) -> dict[str, object]:
        return translate(self.api, {"model": self.model, "temperature": 0, "max_output_tokens": _MAX_TOKENS, **fields})

    def _content(self, reply: Reply) -> tuple[object, ...]:
        output = parse_arguments(reply.output) if self.api == "messages" else reply.output
        return output.text, output.reasoning, output.calls, reply.reason

    def _stream(self, body: Body) -> Reply:
        more = {"stream_options": {"include_usage": True}} if self.api == "chat" else {}
        raw = b"".join(self._read(PATHS[self.api], {**body, "stream": True, **more}))
        bodies = self._judge(raw)
        return Reply(*read_stream(self.api, bodies), _usage(bodies), raw)

    def _read(self, path: str, body: Body | None, method: str = "POST") -> Generator[bytes]:
        data = None if body is None else dumps(body)
        with exchange(method, f"{self.url}{path}", self._headers(_EVENT_STREAM), data, self.timeout) as answer:
            if answer.status != _OK:
                raise self._refusal(answer.status, answer.read())
            chunks = iter(answer.chunks)
            begin = next(chunks, b"")
            if answer.content_type.partition(";")[0].strip() != _EVENT_STREAM:
                kind = answer.content_type or "nothing"
                if begin.lstrip().startswith(_FIELDS):
                    raise CaseEnd("fails", f"the answer is a stream, and its content type {kind[:40]}")
                raise CaseEnd("not served", f"the answer is {kind[:40]} instead of a stream")
            yield begin
            yield from chunks

    def _judge(self, raw: bytes, first: int = 0) -> Sequence[Body]:
        judge = AnyJudge(api=self.api, first=first)
        judge.content_type(_EVENT_STREAM)
        judge.feed(raw)
        self._verdicts.append(judge.end())
        decoder = SseDecoder()
        return [body for message in (*decoder.feed(raw), *decoder.end()) if is_object(body := parse(message.data))]

    def _headers(self, accept: str) -> Mapping[str, str]:
        return {"Accept": accept, "Content-Type": "application/json", **self.headers}

    def _send(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        with exchange(method, f"{self.url}{path}", self._headers("application/json"), data, self.timeout) as answer:
            return answer.status, answer.read()

    def _whole(self, body: Body) -> Reply:
        status, raw = self._send("POST", PATHS[self.api], dumps(body))
        if status != _OK:
            raise self._refusal(status, raw)
        answer = parse(raw)
        if not is_object(answer):
            raise CaseEnd("fails", f"the answer is not a JSON object: {raw[:40]!r}")
        if self.api == "responses":
            event: Body = {"type": "response.completed", "sequence_number": 0, "response": answer}
            findings, _ = check_fields(Completed, event)
            for finding in findings:
                if not finding.deviation:
                    raise CaseEnd("fails", f"R14: {finding.message}")
        return Reply(*read_whole(self.api, answer), _usage([answer]), raw)

    def _refusal(self, status: int, raw: bytes) -> Exception:
        """Return the exception for an answer with a status that is not 200."""
        body = parse(raw)
        note = f"{status} {_error(self.api, body) or _excerpt(raw)}"
        if members(members(body).get("error")).get("code") in _NOT_SEEN:
            return CaseEnd("not seen", note)
        if status in _NO_ACCESS and not self._results:
            return NoAccessError(note)
        return CaseEnd("not served" if status in _REFUSALS or status == 501 else "fails", note)  # noqa: PLR2004 - not implemented

    def _take_steps(self, steps: Sequence[CaseStep]) -> None:
        first: Body = {}
        for place, step in enumerate(steps):
            answer = self._take(step, first)
            wrong = next(_differences(step, answer, first), "")
            if wrong and answer.get("status") in step.ends:
                raise CaseEnd("not seen", wrong)
            if wrong:
                raise CaseEnd("not served" if place == 0 and len(steps) > 1 else "fails", wrong)
            if step.grows and _usage([answer])[0] <= _usage([first])[0]:
                raise CaseEnd("not seen", "the input has no more tokens than the first one")
            first = first or answer

    def _take(self, step: CaseStep, first: Body) -> Body:
        path = step.path.replace("{id}", as_text(first.get("id")))
        path = path if path.startswith("/v1") else PATHS[self.api] + path
        body = self._body(step, first)
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                status, raw = self._send(step.method, path, body)
            except SlowAnswerError as error:
                if step.method == "POST" and step.refused != "must":
                    raise
                raise CaseEnd("fails", str(error)) from error  # no model is needed
            answer = members(parse(raw))
            if not (step.ends and answer.get("status") in OPEN and time.monotonic() < deadline):
                break
            time.sleep(_WAIT)
        if step.refused:
            self._check_refusal(step, status, raw)
            return {}
        if status != _OK:
            raise self._refusal(status, raw)
        return answer

    def _body(self, step: CaseStep, first: Body) -> bytes | None:
        if step.fields is None or isinstance(step.fields, bytes):
            return step.fields
        if step.path.startswith("/v1/"):
            return dumps(step.fields)
        fields = {"model": self.model, **step.fields}
        body = fields if step.verbatim else translate(self.api, fields) if step.path else self._request(fields)
        return dumps(body).replace(b"{id}", as_text(first.get("id")).encode())

    def _check_refusal(self, step: CaseStep, status: int, raw: bytes) -> None:
        if status == _OK:
            raise CaseEnd("not served" if step.refused == "may" else "fails", "accepted")
        if status not in _REFUSALS:
            raise CaseEnd("fails", f"{status} {_excerpt(raw)}")
        if not _error(self.api, parse(raw)):
            raise CaseEnd("fails", f"{status} without an error of the API: {_excerpt(raw)}")

    def _begin(self, case: Case) -> Body:
        """Disconnect from a stream, and return its first event."""
        with closing(self._read(PATHS[self.api], {**self._request(case.fields), "stream": True})) as chunks:
            decoder = SseDecoder()
            return members(next((parse(message.data) for chunk in chunks for message in decoder.feed(chunk)), None))

    def _disconnect(self, case: Case) -> None:
        """Disconnect from a stream; the server must still answer another client."""
        self._begin(case)
        status, raw = self._send("POST", PATHS[self.api], dumps(self._request(HELLO)))
        if status != _OK:
            raise self._refusal(status, raw)

    def _resume(self, case: Case) -> None:
        """Disconnect from the stream of a background response, and read it from the third event."""
        response = members(self._begin(case).get("response"))
        if not response.get("background"):
            raise CaseEnd("not served", f"background is {dumps(response.get('background')).decode()}")
        path = f"{PATHS[self.api]}/{response.get('id')}?stream=true&starting_after=1"
        self._judge(b"".join(self._read(path, None, "GET")), first=2)

    def _use_socket(self, case: Case) -> None:
        """Send two requests over one WebSocket; the second continues the conversation of the first."""
        try:  # the extra `serve` has them
            from websockets.exceptions import InvalidHandshake, InvalidMessage, WebSocketException  # noqa: PLC0415 - see above
            from websockets.sync.client import connect  # noqa: PLC0415 - likewise
        except ModuleNotFoundError as error:
            raise CaseEnd("not seen", "the package websockets is not installed") from error
        address = f"ws{self.url.removeprefix('http')}{PATHS[self.api]}"
        try:
            with connect(
                address, additional_headers=self.headers, open_timeout=self.timeout, max_size=None, proxy=None
            ) as socket:
                previous: Body = {}
                for _ in range(2):
                    request = {"type": "response.create", **self._request(case.fields), **previous}
                    socket.send(json.dumps(request))
                    frames: list[str] = []
                    deadline = time.monotonic() + self.timeout
                    while not frames or _kind(frames[-1]) not in (*TERMINAL, "error"):
                        frames.append(str(socket.recv(timeout=max(0.0, deadline - time.monotonic()))))
                    if _kind(frames[-1]) == "error":
                        raise CaseEnd("not served", frames[-1])
                    events = self._judge(
                        b"".join(f"event: {_kind(one)}\ndata: {one}\n\n".encode() for one in frames) + b"data: [DONE]\n\n"
                    )
                    previous = {"previous_response_id": members(events[-1].get("response")).get("id")}
        except (InvalidHandshake, InvalidMessage) as error:
            raise CaseEnd("not served", str(error)) from error
        except TimeoutError as error:
            raise SlowAnswerError(f"not read within {self.timeout:g} seconds") from error
        except (OSError, WebSocketException) as error:
            raise CaseEnd("fails", f"{type(error).__name__}: {error}") from error


def _differences(step: CaseStep, answer: Body, first: Body) -> Iterator[str]:
    """Yield what a step requires and its answer lacks."""
    for name, value in step.has.items():
        wanted = value if is_array(value) else (value,)
        if not (answer.get(name) if value is ANY else answer.get(name) in wanted):
            yield f"{name} is {dumps(answer.get(name)).decode()}"
    yield from (f"{name} differs from the first answer" for name in step.same if answer.get(name) != first.get(name))


def _excerpt(data: bytes) -> str:
    return printable(data[:_NOTE_LENGTH].decode(errors="replace"))


def _kind(frame: str) -> str:
    return as_text(members(parse(frame)).get("type"))


def _error(api: TestedApi, answer: object) -> str:
    """Return the message of an error of an API; an empty text if the answer is not an error."""
    body = members(answer)
    error = members(body.get("error"))
    typed = api != "messages" or (body.get("type") == "error" and bool(as_text(error.get("type"))))
    return as_text(error.get("message")) if typed else ""


def _ending_error(raw: bytes) -> str:
    """Return a note about an answer, streamed or whole, that ends with an error: its code and message, if it has them."""
    decoder = SseDecoder()
    streamed = [parse(message.data) for message in (*decoder.feed(raw), *decoder.end())]
    bodies = [members(body) for body in (streamed or [parse(raw)])]
    errors = [members(members(body.get("response")).get("error") or body.get("error")) for body in bodies]
    texts = [as_text(error.get(name)) for error in errors for name in ("code", "message")]
    return ": ".join(["the answer ends with an error", *filter(None, dict.fromkeys(texts))])


def _usage(bodies: Sequence[Body]) -> tuple[int, int, int]:
    """Return the tokens of input, of output and of both that an answer reports, streamed or whole."""
    counts: dict[str, object] = {}
    for body in bodies:
        for holder in (body, members(body.get("response")), members(body.get("message"))):
            counts |= members(holder.get("usage"))
    first, second = (counts.get(f"{new}_tokens", counts.get(f"{old}_tokens")) for new, old in _NAMES)
    tokens, output = (count if isinstance(count, int) else 0 for count in (first, second))
    total = counts.get("total_tokens", tokens + output)
    return tokens, output, total if isinstance(total, int) else 0


_NAMES: Final = (("input", "prompt"), ("output", "completion"))


def _first_error(verdicts: Sequence[Verdict]) -> str:
    """Return the first error of the verdicts, of which one has an error."""
    finding = next(each for verdict in verdicts for each in verdict.findings if each.severity == "error")
    return ": ".join(filter(None, (finding.rule, finding.received.removeprefix("response."), finding.message)))
