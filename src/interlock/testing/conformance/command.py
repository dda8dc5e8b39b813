"""The command `interlock conformance`, which sends requests to a server and judges the answers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, get_args

import attrs
import click
import msgspec

from interlock.events.json import clean, dumps
from interlock.serving.cli.options import ExchangeError, NumberType, UrlRequest, examples, fail, is_url, list_models
from interlock.serving.settings import variable
from interlock.testing.conformance.answers import TestedApi
from interlock.testing.conformance.cases import Result
from interlock.testing.conformance.player import CaseResult, NoAccessError, Player

_TIMEOUT: Final = 60.0


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
    """Return how many cases have each result."""
    counts = Counter(case.result for case in cases)
    return {result: counts[result] for result in get_args(Result)}


def _table(cases: Sequence[CaseResult], api: TestedApi) -> Iterator[str]:
    """Yield the results as lines of text, by topic."""
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
