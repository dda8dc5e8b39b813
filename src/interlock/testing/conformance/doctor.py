"""The command `interlock doctor`: plays five cases to an upstream, through a gateway, and says what is wrong."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import click
from attrs import evolve

from interlock.events.json import dumps, members, parse
from interlock.serving.build import build
from interlock.serving.cli.options import (
    UPSTREAM,
    ExchangeError,
    examples,
    exchange,
    list_models,
    options_of,
    required_upstreams,
    settings_of,
)
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.survey import survey
from interlock.serving.engines.upstream.translator import Upstream
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.testing.conformance.cases import QUICK, Result
from interlock.testing.conformance.player import Player

Mark: TypeAlias = Literal["yes", "no", "-"]
"""Whether the upstream can do something; `-` if that shows only with a model that does it."""
ReportLine: TypeAlias = tuple[str, Mark, str]
"""A line of the report: what it is about, the mark, and what explains it."""

COLOURS: Final[Mapping[Mark, str]] = {"yes": "green", "no": "red", "-": "yellow"}
MARKS: Final[Mapping[Result, Mark]] = {"passes": "yes", "fails": "no", "not served": "no", "not seen": "-"}
REQUIRED: Final = frozenset({"answers", "tools"})
"""The lines that must say yes."""
LATE_SYSTEM: Final = (("user", "Hi"), ("assistant", "Hello."), ("system", "Answer in one word."), ("user", "How are you?"))
"""The roles and texts of a conversation with a late system message."""
JSON: Final = {"Content-Type": "application/json"}
MAX_NAMES: Final = 5
"""The most models that are named."""
_TIMEOUT: Final = 60.0
"""The most seconds for one answer."""


@click.command(
    epilog=examples(
        "interlock doctor --upstream http://127.0.0.1:11434",
        "interlock doctor --upstream http://127.0.0.1:8000 --upstream-api vllm --model openai/gpt-oss-20b",
    )
)
@options_of(*UPSTREAM, "family")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the first one of the upstream.")
def doctor(*, model: str | None, **_options: object) -> None:
    """Say what an upstream can do, and what is wrong.

    A gateway sends the upstream five cases of `interlock conformance`: a text, a limit of tokens, a required call, reasoning and
    a JSON schema; and then a system message after others. The exit status is 0 if the model answers, calls a tool, and nothing is
    wrong, and otherwise 1.
    """
    upstreams = required_upstreams(settings_of())
    key = secrets.token_urlsafe()  # other users of this machine can reach the port
    marks: dict[str, Mark] = {}
    logging.disable(logging.WARNING)  # the report has the errors
    try:
        gateway = Gateway([evolve(each, late_system=True) for each in upstreams])
        with ServerThread(build(Settings(api_key=(key,)), gateway)) as url:
            for name, mark, text in examine(url, key, model, reason(upstreams)):
                click.echo(f"{name:<11}{click.style(f'{mark:<5}' if text else mark, fg=COLOURS[mark])}{text}")
                marks[name] = mark
    finally:
        logging.disable(logging.NOTSET)
    sys.exit("no" in marks.values() or {marks[name] for name in REQUIRED & marks.keys()} != {"yes"})


def reason(upstreams: Iterable[Upstream]) -> str:
    """Return why the upstreams list no model, or "" if they do."""
    faults = [f"{each.upstream.client.url} {each.fault}" for each in asyncio.run(survey(upstreams)) if each.fault is not None]
    return "; ".join(faults)


def examine(url: str, key: str, model: str | None, fault: str) -> Iterator[ReportLine]:
    """Play the cases to the upstream behind a gateway, and yield the lines of the report; `fault` says why it lists no model."""
    headers = {"Authorization": f"Bearer {key}"}
    windows = list_models(url, headers, _TIMEOUT)
    names = ", ".join([*windows][:MAX_NAMES]) + (", …" if len(windows) > MAX_NAMES else "")
    yield "models", "yes" if windows else "no", f"{len(windows)}: {names}" if windows else fault or "the upstream lists none"
    chosen = model or next(iter(windows), None)
    if chosen is None:
        yield "answers", "no", "there is no model to ask; name one with --model NAME"
        return
    window = windows.get(chosen)
    yield "window", "-" if window is None else "yes", "not listed" if window is None else f"{window:,} tokens"
    for case in Player(url, "responses", chosen, headers, _TIMEOUT).play(QUICK):
        yield case.name, MARKS[case.result], case.note
    yield "system", *accepts_late_system(url, headers, chosen)


def accepts_late_system(url: str, headers: Mapping[str, str], model: str) -> tuple[Mark, str]:
    """Return whether a model's template allows a system message after others, and what follows for the settings."""
    messages = [{"role": role, "content": text} for role, text in LATE_SYSTEM]
    body = dumps({"model": model, "input": messages, "store": False})
    try:
        with exchange("POST", f"{url}/v1/responses", {**headers, **JSON}, body, _TIMEOUT) as answer:
            response = members(parse(answer.read()))
    except ExchangeError as error:
        return "-", str(error)
    if response.get("status") in ("completed", "incomplete"):
        return "yes", "it may come late: set late_system = true, unless the API is responses"
    return "-", "it must come first: the gateway sends a later one as a user's text"
