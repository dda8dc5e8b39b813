"""Judges streams of Anthropic's Messages and OpenAI's Chat Completions, and finds out which API a stream is of.

docs/dialects.md explains the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from attrs import evolve

from interlock.events.decode import SseMessage
from interlock.events.dialects import DialectName
from interlock.events.json import as_text, elements, is_object, members, parse
from interlock.events.rulebook import Finding, Rule, read_rows
from interlock.events.sse import CONTENT_TYPE
from interlock.judges.automaton import Step
from interlock.judges.dialect_events import DIALECT_AUTOMATA, name_chunk, name_message_event
from interlock.judges.dialect_rules import MESSAGES_EVENTS, check_chat, check_inputs, check_messages
from interlock.judges.judging import DONE, MAX_LISTED, Judge, JudgedMessage, StreamDecoder, Tally, Verdict, read_body

ApiName: TypeAlias = Literal["responses", "messages", "chat"]
"""An API whose streams can be judged."""

UNDECIDED: Final = 2**16
"""The most bytes that are read before a stream counts as one of the Responses API."""


def find_api(body: Mapping[str, object]) -> ApiName | None:
    """Return the API of an event or a whole answer by its shape; None if it has no shape of any."""
    kind = as_text(body.get("type"))
    is_error = kind == "error" and is_object(body.get("error")) and "sequence_number" not in body
    if is_error or kind == "message" or kind in MESSAGES_EVENTS - {"error"}:
        return "messages"
    if kind or body.get("object") == "response":
        return "responses"
    is_chat = "choices" in body or body.get("error") is not None or as_text(body.get("object")).startswith("chat.completion")
    return "chat" if is_chat else None


def _api_of(message: SseMessage) -> ApiName | None:
    """Return the API of a message; if its data cannot be read, by the name of its event."""
    body = read_body(message)
    if body is not None:
        return find_api(body)
    named = message.event in MESSAGES_EVENTS - {"error"} or message.event.startswith("response.")
    return find_api({"type": message.event}) if named else None


def _first(apis: Iterable[ApiName | None]) -> ApiName | None:
    return next((api for api in apis if api is not None), None)


_RULES: Final = """
M1|opening|order|`message_start` comes first and once, empty, with id, model and usage.|SDKs build the message from it.
M2|blocks|order|Blocks come one after another, each with the next index.|SDKs find a block by its index or take the last one.
M3|deltas|content|Each delta fits the type of its block.|SDKs drop it or raise an error.
M4|signature|order|One signature ends a block of thinking.|The reasoning cannot be sent back.
M5|calls|content|A call has an id, a name and an input; the JSON of its deltas is an object.|The tool runs with wrong arguments.
M6|results|content|Results and redacted thinking are whole at their start.|
M7|end|order|After the last block, `message_delta` has the reason and the usage.|SDKs have no reason and no usage.
M8|reason|content|`tool_use` if and only if a call is complete; `stop_sequence` with its string.|An agent stops early, or waits.
M9|stop|order|`message_stop` comes last.|A client waits, or reads what is not there.
M10|ping|order|`ping` may come anywhere.|
M11|error|order|`error` has a type and a message, and ends the stream anywhere.|A client cannot tell why the message failed.
M12|frames|content|The name of a frame is the type in its data.|SDKs skip the event.
M13|whole|content|A whole message equals what the stream adds up to; no object is an empty input.|
M14|text|content|The next request may have the blocks as they were. No text is empty.|The API refuses the message later.
C1|role|order|The first chunk of a choice has the role, and no other does.|Clients begin the message twice, or never.
C2|finish|order|The last chunk of a choice has an empty delta and the reason, null in all others.|Clients stop early, or never.
C3|reason|content|`length`, `content_filter` before `tool_calls`, that before `stop`; a named `tool_choice`: `stop`.|Agents wait.
C4|calls|order|Calls come one after another; id, type and name come once; arguments are text.|Clients mix up or lose calls.
C5|usage|order|If requested, the usage is in one chunk without choices at the end.|Clients count tokens twice.
C6|chunks|content|All chunks have one id, time and model; a choice has an index and a delta.|Clients mix up answers.
C7|reasoning|content|Reasoning is in `reasoning_content` and in `reasoning`.|Clients that read the other one lose it.
C8|ending|order|`[DONE]` comes last; an error is the last chunk.|A client waits, or takes a failure for an end.
C9|whole|content|A whole message equals what the stream adds up to, with `refusal` and `annotations`; its choice has `logprobs`.|
"""
"""A rule in each line. Only those that one stream can show say what breaks."""

DIALECT_RULES: Final[Mapping[str, Rule]] = read_rows(_RULES, Rule)
"""The rules of both APIs, by number."""


class DialectJudge:
    """Validates the bytes of a stream of one of both APIs, at its end; then `findings` has all findings."""

    def __init__(self, api: Literal["messages", "chat"]) -> None:
        self.api: Literal["messages", "chat"] = api
        self._decoder = StreamDecoder()
        self._messages: list[SseMessage] = []
        self._bodies: list[Mapping[str, object]] = []
        """The body of each message but end markers; empty if it has none."""
        self._marked_at: int | None = None
        """The number of messages before the first end marker."""
        self._automaton = DIALECT_AUTOMATA[api]
        self._node = self._automaton.start
        self._block: object = None
        """The index of the block of Messages that began last; events of any other block are not legal."""
        self.findings: list[Finding] = []

    def content_type(self, value: str) -> None:
        """Check the value of the `Content-Type` header."""
        if value.partition(";")[0].strip().lower() != CONTENT_TYPE:
            self._add(Finding(self._framing_rule, f"the content type is {value!r} instead of {CONTENT_TYPE}"))

    @property
    def _framing_rule(self) -> str:
        return "C8" if self.api == "chat" else "M12"

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes of the stream, which may be split anywhere."""
        for _ in self.follow(chunk):
            pass

    def follow(self, chunk: bytes) -> Iterator[JudgedMessage]:
        """Read the next bytes, and yield each message that they complete, without findings."""
        return self._take(self._decoder.feed(chunk))

    def follow_end(self) -> Iterator[JudgedMessage]:
        """Read and yield the last message if its final empty line is missing."""
        return self._take(self._decoder.end())

    def _take(self, messages: Iterable[SseMessage]) -> Iterator[JudgedMessage]:
        for message in messages:
            if message.data == DONE:
                if self._marked_at is None:
                    self._marked_at = len(self._messages)
                yield JudgedMessage(message, None, (), None)
                continue
            body = read_body(message)
            self._messages.append(message)
            self._bodies.append(body or {})
            yield JudgedMessage(message, body, (), None if body is None else self._step(body))

    def _step(self, body: Mapping[str, object]) -> Step | None:
        """Return what an event does to the transducer's machine; None if it says nothing of it."""
        name = name_message_event(body) if self.api == "messages" else name_chunk(body)
        if name in ("", "ping", "usage"):
            return None
        kind = body.get("type") if self.api == "messages" else None
        if kind == "content_block_start":
            self._block = body.get("index")
        is_stray = kind in ("content_block_delta", "content_block_stop") and body.get("index") != self._block
        automaton, before, event = self._automaton, self._node, ""
        if name in automaton.events and not is_stray:
            event = name
            # If the event is not legal, either it came too early, or another is missing.
            self._node = automaton.step(before, event) or automaton.union(before, automaton.after(event))
        return automaton.explain(before, event, self._node)

    def end(self) -> Verdict:
        """Validate the stream, and return the verdict."""
        for _ in self.follow_end():
            pass
        findings = self._check_chat() if self.api == "chat" else self._check_messages()
        for finding in findings:
            self._add(finding)
        if not self._decoder.is_framed:
            self._add(Finding(self._framing_rule, "the stream has one JSON object per line", f"bare-{self.api}-lines"))
        return self._verdict()

    def _check_chat(self) -> Iterator[Finding]:
        bodies = self._bodies[: self._marked_at]
        yield from check_chat(bodies, usage=any(body.get("usage") is not None for body in bodies))
        if self._marked_at is None:
            is_over = any(members(choice).get("finish_reason") for body in bodies for choice in elements(body.get("choices")))
            is_over |= any(body.get("error") is not None for body in bodies)
            yield Finding("C8", "the stream has no end marker [DONE]", "no-marker" if is_over else "", len(bodies))
        for index in range(len(bodies), len(self._bodies)):
            deviation = "" if elements(self._bodies[index].get("choices")) else "after-marker"
            yield Finding("C8", "comes after the end marker [DONE]", deviation, index)

    def _check_messages(self) -> Iterator[Finding]:
        yield from check_messages(self._bodies)
        yield from check_inputs(self._bodies)
        if self._marked_at is not None:
            yield Finding("M9", "the stream has the end marker [DONE]", "marker", self._marked_at)
        for index, (message, body) in enumerate(zip(self._messages, self._bodies, strict=True)):
            name = body.get("type")
            if not isinstance(name, str) or (message.event != name and self._decoder.is_framed):
                yield Finding("M12", f"the event is {message.event!r}, and its type is {name!r:.40}", event=index)

    def _add(self, finding: Finding) -> None:
        if finding.event < len(self._messages):
            message, body = self._messages[finding.event], self._bodies[finding.event]
            finding = evolve(finding, received=as_text(body.get("type")) or message.event, line=message.line)
        self.findings.append(finding)

    def _verdict(self) -> Verdict:
        bodies = self._bodies
        tally = Tally()
        tally.add(self.findings)
        choices = [members(choice) for body in bodies for choice in elements(body.get("choices"))]
        reasons = [
            *(members(body.get("delta")).get("stop_reason") for body in bodies if body.get("type") == "message_delta"),
            *(choice.get("finish_reason") for choice in choices),
        ]
        blocks = [as_text(members(body["content_block"]).get("type")) for body in bodies if "content_block" in body]
        return Verdict(
            events=len(bodies),
            items=blocks,
            status=next((reason for reason in reversed(reasons) if reason and isinstance(reason, str)), None),
            has_done_marker=self._marked_at is not None,
            findings=tally.findings,
            rules={rule: tally.rules[rule] for rule in DIALECT_RULES if rule in tally.rules},
            severities=tally.severities,
            end_findings=sorted(self.findings, key=lambda finding: finding.event)[:MAX_LISTED],
        )


class AnyJudge:
    """Validates the bytes of a stream of any of the APIs, which its first event shows unless `api` names it.

    `dialect`, `permissive` and `first` are for the Responses API; see `Judge`.
    """

    def __init__(
        self, *, api: ApiName | None = None, dialect: DialectName = "openai", permissive: bool = False, first: int = 0
    ) -> None:
        self._responses: Callable[[], Judge] = lambda: Judge(dialect=dialect, permissive=permissive, first=first)
        self._judge: Judge | DialectJudge | None = None if api is None else self._make(api)
        self._content_type: str | None = None
        self._beginning = StreamDecoder()
        """Decodes the beginning, which shows the API."""
        self._unread = b""

    def _make(self, api: ApiName) -> Judge | DialectJudge:
        return self._responses() if api == "responses" else DialectJudge(api)

    def content_type(self, value: str) -> None:
        """Check the value of the `Content-Type` header."""
        self._content_type = value

    @property
    def api(self) -> ApiName | None:
        """The API of the stream; None as long as it is not known."""
        match self._judge:
            case DialectJudge():
                return self._judge.api
            case None:
                return None
            case _:
                return "responses"

    def feed(self, chunk: bytes) -> None:
        """Validate the next bytes of the stream, which may be split anywhere."""
        judge = self._read(chunk)
        if judge is not None:
            judge.feed(self._take_unread())

    def follow(self, chunk: bytes) -> Iterator[JudgedMessage]:
        """Validate the next bytes, and yield each message that they complete; `Judge` has its findings, too."""
        judge = self._read(chunk)
        return iter(()) if judge is None else judge.follow(self._take_unread())

    def follow_end(self) -> Iterator[JudgedMessage]:
        """Validate and yield the last message if its final empty line or line feed is missing."""
        judge = self._choose(self._find_at_end())
        yield from judge.follow(self._take_unread())
        yield from judge.follow_end()

    def end(self) -> Verdict:
        """Validate the end of the stream, and return the verdict."""
        judge = self._choose(self._find_at_end())
        judge.feed(self._take_unread())
        return judge.end()

    def _read(self, chunk: bytes) -> Judge | DialectJudge | None:
        """Return the judge of the stream, if its beginning shows the API."""
        self._unread += chunk
        api = self.api or _first(map(_api_of, self._beginning.feed(chunk)))
        if api is None and len(self._unread) > UNDECIDED:
            api = "responses"
        return None if api is None else self._choose(api)

    def _find_at_end(self) -> ApiName:
        """Return the API of a stream that ends; it may be a whole answer, or a list of events."""
        if self.api is not None:
            return self.api
        value = parse(self._unread)
        bodies = [members(each) for each in elements(value) or [value]]
        return _first([*map(_api_of, self._beginning.end()), *map(find_api, bodies)]) or "responses"

    def _choose(self, api: ApiName) -> Judge | DialectJudge:
        """Return the judge of the stream, making that of an API if there is none yet."""
        if self._judge is None:
            self._judge = self._make(api)
        if self._content_type is not None:
            self._judge.content_type(self._content_type)
            self._content_type = None
        return self._judge

    def _take_unread(self) -> bytes:
        unread, self._unread = self._unread, b""
        return unread
