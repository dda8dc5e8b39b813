"""The command `interlock conformance`, which sends requests to a server and judges the answers."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from interlock.events.json import as_text, clean, elements, members, parse
from interlock.serving.cli.options import FILE, KEY_VARIABLE, NumberType, examples
from interlock.serving.cli.sources import UrlRequest, fail, is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interlock.judges import ApiName

_TIMEOUT: Final = 60.0


@click.command(
    epilog=examples(
        "interlock conformance http://127.0.0.1:8000",
        "interlock conformance http://127.0.0.1:11434 --api chat --model qwen3:4b",
        "interlock conformance http://127.0.0.1:8000 --html report.html --badge badge.svg",
    )
)
@click.argument("url", metavar="URL")
@click.option("--api", type=click.Choice(["responses", "messages", "chat"]), default="responses", help="The API to try.")
@click.option("--model", metavar="NAME", help="The model to ask. Default: the first that the server lists.")
@click.option("--api-key", metavar="KEY", envvar=KEY_VARIABLE, show_envvar=True, help="The API key of the server.")
@click.option("--header", multiple=True, metavar="NAME:VALUE", help="Add a header to each request; can be repeated.")
@click.option("--timeout", type=NumberType(min=0.1), default=_TIMEOUT, metavar="SECONDS", help="The longest time for an answer.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Write a table or JSON.")
@click.option("--html", type=FILE, metavar="FILE", help="Also write the results to this file, as HTML.")
@click.option("--badge", type=FILE, metavar="FILE", help="Also write a badge to this file, as SVG.")
def conformance(  # noqa: PLR0913 - a command has an argument for each of its options
    url: str,
    *,
    api: ApiName,
    model: str | None,
    api_key: str | None,
    header: tuple[str, ...],
    timeout: float,
    form: Literal["text", "json"],
    html: Path | None,
    badge: Path | None,
) -> None:
    """Send some forty requests to a server, and judge its answers.

    URL is that of the server, without the path of the API. The exit status is 1 if a case fails, and 2 if there is no server.
    """
    from interlock.serving.conformance import reports
    from interlock.serving.conformance.player import NoAccessError, Player

    if not is_url(url):
        raise click.BadParameter("give the address of a server, such as http://127.0.0.1:8000", param_hint="URL")
    url = url.rstrip("/").removesuffix("/v1")
    headers = dict(UrlRequest.from_options({"body": None, "header": header, "api_key": api_key, "timeout": timeout}).headers)
    if api == "messages":
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": api_key} if api_key else {}), **headers}
    name = model or _first_model(url, headers, timeout)
    try:
        cases = list(Player(url, api, name, headers, timeout).play())
    except NoAccessError as error:
        fail(f"{url}: {error}")
    report = reports.Report(url, api, name, datetime.now(UTC).date().isoformat(), cases)
    if form == "json":
        click.echo(reports.as_json(report))
    else:
        for line in reports.as_text(report):
            click.echo(clean(line))
    for file, text in ((html, reports.as_html(report)), (badge, reports.as_badge(report))):
        if file is not None:
            file.write_text(clean(text), encoding="utf-8")
    sys.exit(1 if report.counts["fails"] else 0)


def _first_model(url: str, headers: Mapping[str, str], timeout: float) -> str:
    """Return the first model that the server lists, or end the command with a message."""
    from interlock.serving.conformance.exchange import ExchangeError, exchange

    try:
        with exchange("GET", f"{url}/v1/models", headers, None, timeout) as answer:
            listed = parse(answer.read())
    except ExchangeError as error:
        fail(f"{url}: {error}")
    names = [as_text(members(model).get("id")) for model in elements(members(listed).get("data"))]
    return names[0] if names else fail(f"{url}: the server lists no model; name one with --model")
