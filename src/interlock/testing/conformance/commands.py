"""The commands `interlock conformance`, which sends requests to a server, and `interlock doctor`, which asks an upstream."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import attrs
import click
import msgspec
from attrs import evolve

from interlock.events.json import clean, dumps, members, parse
from interlock.serving.cli.options import (
    UPSTREAM,
    ExchangeError,
    NumberType,
    UrlRequest,
    examples,
    exchange,
    fail,
    is_url,
    list_models,
    options_of,
    required_upstreams,
    settings_of,
)
from interlock.serving.settings import Settings, variable
from interlock.testing.conformance.apis import TestedApi
from interlock.testing.conformance.cases import QUICK, Result
from interlock.testing.conformance.player import CaseResult, NoAccessError, Player

if TYPE_CHECKING:
    from interlock.serving.engines.upstream.upstream_client import Upstream

_TIMEOUT: Final = 60.0
"""The most seconds for one answer."""


@click.command(
    epilog=examples(
        "interlock conformance http://127.0.0.1:8000",
        "interlock conformance http://127.0.0.1:11434 --api chat --model qwen3:4b",
    )
)
@click.argument("url", metavar="URL")
@click.option("--api", type=click.Choice(get_args(TestedApi)), default="responses", help="The API to try.")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the first that the server lists.")
@click.option("--api-key", metavar="KEY", envvar=variable("api_key"), show_envvar=True, help="The API key of the server.")
@click.option("--header", multiple=True, metavar="NAME:VALUE", help="Add a header to each request; can be repeated.")
@click.option("--timeout", type=NumberType(min=0.1), default=_TIMEOUT, metavar="SECONDS", help="The longest time for an answer.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Write a table or JSON.")
def conformance(
    url: str,
    *,
    api: TestedApi,
    model: str | None,
    api_key: str | None,
    header: tuple[str, ...],
    timeout: float,
    form: Literal["text", "json"],
) -> None:
    """Send some forty requests to a server, and judge its answers.

    URL is that of the server, without the path of the API. The exit status is 1 if a case fails, and 2 if there is no server.
    """
    if not is_url(url):
        raise click.BadParameter("give the address of a server, such as http://127.0.0.1:8000", param_hint="URL")
    url = url.rstrip("/").removesuffix("/v1")
    headers = dict(UrlRequest.from_options({"body": None, "header": header, "api_key": api_key, "timeout": timeout}).headers)
    headers = {**headers_of(api, api_key), **headers}
    name = model or _first_model(url, headers, timeout)
    try:
        cases = list(Player(url, api, name, headers, timeout).play())
    except NoAccessError as error:
        fail(f"{url}: {error}")
    if form == "json":
        click.echo(msgspec.json.format(dumps(report_of(url, api, name, cases)), indent=2))
    else:
        for line in _table(cases, api):
            click.echo(clean(line))
    sys.exit(1 if _count(cases)["fails"] else 0)


def headers_of(api: TestedApi, key: str | None) -> Mapping[str, str]:
    """Return the headers that an API requires besides the key as a bearer token."""
    if api != "messages":
        return {}
    return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}


def report_of(url: str, api: TestedApi, model: str, cases: Sequence[CaseResult]) -> Mapping[str, object]:
    """Return the results of a server as a JSON object."""
    about = {"url": url, "api": api, "model": model, "date": datetime.now(UTC).date().isoformat()}
    return {"version": 1, **about, "cases": [*map(attrs.asdict, cases)], "counts": _count(cases)}


def _count(cases: Sequence[CaseResult]) -> Mapping[Result, int]:
    counts = Counter(case.result for case in cases)
    return {result: counts[result] for result in get_args(Result)}


def _table(cases: Sequence[CaseResult], api: TestedApi) -> Iterator[str]:
    width = max(len(case.name) for case in cases)
    group = ""
    for case in cases:
        if case.group != group:
            group = case.group
            yield from ("", group)
        yield f"  {case.name:{width}}  {case.result:10}  {'; '.join(filter(None, (case.note, _findings(case))))}".rstrip()
    counts = ", ".join(f"{count} {result}" for result, count in _count(cases).items() if count)
    yield from ("", f"{len(cases)} cases of {api}: {counts}")


def _findings(case: CaseResult) -> str:
    """Return the rules that a case broke, and the names of its deviations, each with how often."""
    return ", ".join(
        f"{name} x{times}" if times > 1 else name for names in (case.errors, case.deviations) for name, times in names.items()
    )


def _first_model(url: str, headers: Mapping[str, str], timeout: float) -> str:
    """Return the first model that the server lists, or end the command with a message."""
    try:
        names = [*list_models(url, headers, timeout)]
    except ExchangeError as error:
        fail(f"{url}: {error}")
    return names[0] if names else fail(f"{url}: the server lists no model; name one with --model")


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
LATE_SYSTEM_ADVICE: Final[Mapping[tuple[bool, bool], str]] = {
    (True, True): "a system message may follow others: with `late_system = true` in the file, the gateway sends it as one",
    (True, False): "a system message may follow others",
    (False, True): "a system message must come first: the gateway sends a later one as a user's text",
    (False, False): "a system message must come first: a client that sends a later one receives an error",
}
"""The text of the line, by whether the model accepts such a message, and whether the setting `late_system` concerns it."""
JSON: Final = {"Content-Type": "application/json"}
MAX_NAMES: Final = 5
"""The most models that are named."""


@click.command(
    epilog=examples(
        "interlock doctor --upstream http://127.0.0.1:11434",
        "interlock doctor --upstream http://127.0.0.1:8000 --upstream-api vllm --model openai/gpt-oss-20b",
    )
)
@options_of(*UPSTREAM, "family")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the first one of each upstream.")
def doctor(*, model: str | None, **_options: object) -> None:
    """Say what an upstream can do, and what is wrong.

    A gateway sends each upstream five cases of `interlock conformance`: a text, a limit of tokens, a required call, reasoning and
    a JSON schema; and then a system message after others. The exit status is 0 if the model answers, calls a tool, and nothing is
    wrong, and otherwise 1.
    """
    from interlock.serving.build import build
    from interlock.serving.engines.upstream.gateway import Gateway
    from interlock.serving.http.server import ServerThread

    upstreams = required_upstreams(settings_of())
    key = secrets.token_urlsafe()  # other users of this machine can reach the port
    is_good = True
    logging.disable(logging.WARNING)  # the report has the errors
    try:
        for group in [[each] for each in upstreams] if model is None else [upstreams]:
            gateway = Gateway([evolve(each, settings=msgspec.structs.replace(each.settings, late_system=True)) for each in group])
            marks: dict[str, Mark] = {}
            if len(upstreams) > len(group):
                click.echo(group[0].url)
            with ServerThread(build(Settings(api_key=(key,)), gateway)) as url:
                for name, mark, text in examine(url, key, model, group):
                    click.echo(f"{name:<11}{click.style(f'{mark:<5}' if text else mark, fg=COLOURS[mark])}{text}")
                    marks[name] = mark
            is_good &= "no" not in marks.values() and {marks[name] for name in REQUIRED & marks.keys()} == {"yes"}
    finally:
        logging.disable(logging.NOTSET)
    sys.exit(not is_good)


def reason(upstreams: Iterable[Upstream]) -> str:
    """Return what is wrong with the lists of the upstreams, or ""."""
    from interlock.serving.engines.upstream.upstreams import survey

    faults = [f"{each.upstream.url} {each.fault}" for each in asyncio.run(survey(upstreams)) if each.fault is not None]
    return "; ".join(faults)


def examine(url: str, key: str, model: str | None, upstreams: Sequence[Upstream]) -> Iterator[ReportLine]:
    """Play the cases to the upstreams behind a gateway, and yield the lines of the report."""
    headers = {"Authorization": f"Bearer {key}"}
    windows = list_models(url, headers, _TIMEOUT)
    names = ", ".join([*windows][:MAX_NAMES]) + (", …" if len(windows) > MAX_NAMES else "")
    fault = reason(upstreams) or ("" if windows else "the upstream lists none")
    yield "models", "no" if fault else "yes", fault or f"{len(windows)}: {names}"
    chosen = model or next(iter(windows), None)
    if chosen is None:
        yield "answers", "-", "not asked, because no model is known; --model NAME names one"
        return
    window = windows.get(chosen)
    yield "window", "-" if window is None else "yes", "not listed" if window is None else f"{window:,} tokens"
    cases = list[CaseResult]()
    try:
        for case in Player(url, "responses", chosen, headers, _TIMEOUT).play(QUICK):
            note = case.note if cases else ": ".join(filter(None, (chosen, case.note)))
            yield case.name, MARKS[case.result], note
            cases.append(case)
    except NoAccessError as error:
        yield "answers", "no", f"{chosen}: {error}"
        return
    if cases[0].result != "passes":
        return
    # Responses upstreams receive system messages as they are, and gpt-oss's prompts have a place for them.
    settings = [each.settings for each in upstreams]
    is_setting = any(each.api == "chat" or (each.api == "vllm" and each.family is not None) for each in settings)
    yield "system", *accepts_late_system(url, headers, chosen, is_setting=is_setting)


def accepts_late_system(url: str, headers: Mapping[str, str], model: str, *, is_setting: bool) -> tuple[Mark, str]:
    """Return whether a model's template allows a system message after others, and what follows for the settings."""
    messages = [{"role": role, "content": text} for role, text in LATE_SYSTEM]
    body = dumps({"model": model, "input": messages, "store": False})
    try:
        with exchange("POST", f"{url}/v1/responses", {**headers, **JSON}, body, _TIMEOUT) as answer:
            response = members(parse(answer.read()))
    except ExchangeError as error:
        return "-", str(error)
    accepts = response.get("status") in ("completed", "incomplete")
    return "yes" if accepts else "-", LATE_SYSTEM_ADVICE[accepts, is_setting]
