"""The command `interlock doctor`: asks an upstream, through a gateway, what it can do, and says what is wrong."""

from __future__ import annotations

import json
import logging
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

import click
from attrs import field, frozen

from interlock.events.json import as_text, elements, is_object, loads, members, parse
from interlock.serving.cli.options import UpstreamOptions, examples, options_of, upstreams_of
from interlock.serving.cli.sources import fail

if TYPE_CHECKING:
    from interlock.judges import Verdict

Mark: TypeAlias = Literal["yes", "no", "-"]
"""Whether the upstream can do something; `-` if that shows only with a model that does it."""

COLOURS: Final[Mapping[Mark, str]] = {"yes": "green", "no": "red", "-": "yellow"}
SHOWN: Final = 100
"""The most characters of a text of the upstream that a line shows."""
LISTED: Final = 5
"""The most models that are named."""

WEATHER: Final = {
    "type": "function",
    "name": "get_weather",
    "description": "Returns the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SCHEMA: Final = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}


@frozen
class ReportLine:
    """A line of the report."""

    name: str
    mark: Mark
    text: str


@frozen
class ModelAnswer:
    """An answer: the final response, the verdict on its stream and the seconds to its first event, or an error."""

    response: Mapping[str, object] = field(factory=dict[str, object])
    verdict: Verdict | None = None
    seconds: float = 0.0
    error: str = ""

    def items(self, kind: str) -> list[Mapping[str, object]]:
        """Return the items of a type."""
        return [item for item in self.output if item.get("type") == kind]

    @property
    def output(self) -> list[Mapping[str, object]]:
        """All items."""
        return [*map(members, elements(self.response.get("output")))]

    @property
    def parts(self) -> list[Mapping[str, object]]:
        """The parts of all messages."""
        return [members(part) for item in self.items("message") for part in elements(item.get("content"))]

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "".join(as_text(part.get("text")) for part in self.parts)


@frozen
class Patient:
    """The gateway in front of the upstream, and the model to ask."""

    url: str
    key: str
    model: str
    opener: OpenerDirector = field(factory=lambda: build_opener(ProxyHandler({})))

    def ask(self, question: str, **parameters: object) -> ModelAnswer:
        """Ask the model, and judge the stream."""
        from interlock.judges import Judge

        body = {"model": self.model, "input": question, "stream": True, "store": False, **parameters}
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = Request(f"{self.url}/v1/responses", json.dumps(body).encode(), headers)  # noqa: S310 - our own URL
        judge, lines, first, started = Judge(), list[bytes](), 0.0, time.monotonic()
        try:
            with self.opener.open(request) as answer:
                for line in answer:
                    first = first or time.monotonic() - started
                    judge.feed(line)
                    lines.append(line)
        except HTTPError as error:
            return ModelAnswer(error=error_of(loads(error.read())))
        events = [members(loads(line[len(b"data: ") :])) for line in lines if line.startswith(b"data: {")]
        response = members(events[-1].get("response") if events else None)
        return ModelAnswer(response, judge.end(), first, error_of(response))


def error_of(body: object) -> str:
    """Return the message of an error, or an empty text."""
    return as_text(members(members(body).get("error")).get("message"))[: 3 * SHOWN]


@click.command(
    epilog=examples(
        "interlock doctor --upstream http://127.0.0.1:11434",
        "interlock doctor --upstream http://127.0.0.1:8000 --upstream-api vllm --model openai/gpt-oss-20b",
    )
)
@options_of(UpstreamOptions)
@click.option("--family", metavar="NAME", help="The format of a model family, in which the gateway reads the text.")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the first one of the upstream.")
def doctor(*, family: str | None, model: str | None, **upstream: Any) -> None:  # noqa: ANN401 - click has converted them
    """Say what an upstream can do, and what is wrong.

    A gateway asks the upstream five short questions. The exit status is 0 if the model answers, and 1 if not.
    """
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.http.app import AppSettings, create_app
    from interlock.serving.http.server import ServerThread

    upstreams = upstreams_of(UpstreamOptions(**upstream), family=family)
    if not upstreams:
        fail("name a server: --upstream URL, or --config FILE")
    key = secrets.token_urlsafe()  # other users of this machine can reach the port
    answers = False
    logging.disable(logging.WARNING)  # the report has the errors
    try:
        with ServerThread(create_app(Gateway(upstreams), AppSettings(api_key=key))) as url:
            for line in examine(url, key, model):
                click.echo(f"{line.name:<11}{click.style(f'{line.mark:<5}', fg=COLOURS[line.mark])}{line.text}")
                answers |= line.name == "answers" and line.mark == "yes"
    finally:
        logging.disable(logging.NOTSET)
    sys.exit(not answers)


def examine(url: str, key: str, model: str | None) -> Iterator[ReportLine]:
    """Ask the upstream behind a gateway, and yield the lines of the report."""
    models = list_models(url, key)
    names = ", ".join([*models][:LISTED]) + (", …" if len(models) > LISTED else "")
    yield ReportLine(
        "models", "yes" if models else "no", f"{len(models)}: {names}" if models else _fault(url) or "the upstream lists none"
    )
    chosen = model or next(iter(models), None)
    if chosen is None:
        yield ReportLine("answers", "no", "there is no model to ask; name one with --model NAME")
        return
    window = models.get(chosen)
    yield ReportLine("window", "-" if window is None else "yes", "not listed" if window is None else f"{window:,} tokens")
    patient = Patient(url, key, chosen)
    reply = patient.ask("Answer with the single word OK.")
    yield _answer(chosen, reply)
    if reply.error or reply.verdict is None:
        return
    yield _stream(reply.verdict)
    yield _usage(reply)
    yield _tools(patient.ask("What is the weather in Rome?", tools=[WEATHER], tool_choice="required"))
    reasons = [reply, patient.ask("How many weekdays are in a leap year that begins on a Sunday?", reasoning={"effort": "low"})]
    yield _reasoning(reasons)
    form = {"type": "json_schema", "name": "sum", "schema": SCHEMA, "strict": True}
    yield _schema(patient.ask("What is 2 + 3? Answer as JSON.", text={"format": form}))
    scored = patient.ask("Answer with the single word OK.", include=["message.output_text.logprobs"], top_logprobs=1)
    yield _logprobs(scored)


def _fault(url: str) -> str:
    """Return why no upstream answers, or an empty text."""
    try:
        build_opener(ProxyHandler({})).open(f"{url}/ready").close()
    except HTTPError as error:
        return error_of(loads(error.read()))
    return ""


def list_models(url: str, key: str) -> dict[str, int | None]:
    """Return the context window of each model that a gateway lists, or None for an unknown one."""
    request = Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"})  # noqa: S310 - our own URL
    with build_opener(ProxyHandler({})).open(request) as answer:
        listed = map(members, elements(members(loads(answer.read())).get("data")))
    windows = {as_text(model.get("id")): model.get("max_model_len") for model in listed}
    return {name: window if isinstance(window, int) else None for name, window in windows.items()}


def _answer(model: str, reply: ModelAnswer) -> ReportLine:
    if reply.error:
        return ReportLine("answers", "no", f"{model}: {reply.error}")
    first = f"first event after {reply.seconds:.2f} s"
    return ReportLine("answers", "yes" if reply.text else "no", f"{model}: {reply.text.strip()[:SHOWN]!r}, {first}")


def _stream(verdict: Verdict) -> ReportLine:
    text = f"{verdict.events} events, each in its place"
    rules = ", ".join(verdict.rules)
    return ReportLine(
        "streams", "yes" if verdict.legal else "no", text if verdict.legal else f"breaks {rules} (see interlock check)"
    )


def _usage(reply: ModelAnswer) -> ReportLine:
    usage = members(reply.response.get("usage"))
    if not usage:
        return ReportLine("usage", "no", "the upstream counts no tokens, so the usage of responses is null")
    return ReportLine("usage", "yes", f"{usage.get('input_tokens')} tokens in, {usage.get('output_tokens')} out")


def _tools(reply: ModelAnswer) -> ReportLine:
    calls = [item for item in reply.output if item.get("call_id")]
    if not calls:
        wrote = f"the model wrote {reply.text.strip()[:SHOWN]!r} instead of a call"
        return ReportLine("tools", "no", reply.error or wrote)
    whole = is_object(parse(as_text(calls[0].get("arguments"))))
    return ReportLine("tools", "yes" if whole else "no", f"{calls[0].get('name')}({calls[0].get('arguments')})"[:SHOWN])


def _reasoning(replies: Sequence[ModelAnswer]) -> ReportLine:
    if any(reply.items("reasoning") for reply in replies):
        return ReportLine("reasoning", "yes", "the model's reasoning arrives as items of its own")
    tagged = any(reply.text.lstrip().startswith("<") for reply in replies)
    advice = "the answer begins with a tag; a format of --family may read it" if tagged else "no answer had any"
    return ReportLine("reasoning", "no" if tagged else "-", replies[-1].error or advice)


def _schema(reply: ModelAnswer) -> ReportLine:
    value = parse(reply.text)
    fits = is_object(value) and isinstance(value.get("sum"), int)
    return ReportLine("schema", "yes" if fits else "no", reply.error or reply.text.strip()[:SHOWN])


def _logprobs(reply: ModelAnswer) -> ReportLine:
    has = any(elements(part.get("logprobs")) for part in reply.parts)
    return ReportLine("logprobs", "yes" if has else "no", reply.error or ("with each token" if has else "the answer has none"))
