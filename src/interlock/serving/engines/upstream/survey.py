"""Asks the upstreams of a gateway for their models when it has started, and finds what is wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from attrs import evolve, frozen

from interlock.serving.engines.upstream.model_list import UNAUTHORIZED, UNLISTED, models_in
from interlock.serving.engines.upstream.translator import Upstream
from interlock.serving.engines.upstream.upstream_client import UpstreamClient
from interlock.serving.requests.api_errors import ApiError

PROBE_SECONDS: Final = 2.0
"""The longest time in seconds for the list of an upstream, because the server says only then what it serves."""

ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
"""The paths that belong to a request, not to the URL of an upstream."""

MISPLACED: Final = (*UNLISTED, 502)
"""The statuses of an upstream whose URL may have a wrong path, with that for an answer which is not JSON."""


@frozen
class UpstreamReport:
    """The models of an upstream, and what is wrong with it; the fault is the rest of a sentence about it."""

    upstream: Upstream
    listed: Sequence[str] = ()
    fault: str | None = None
    is_lost: bool = False
    """Whether no request can work: the upstream cannot be reached, or its URL is wrong."""

    @property
    def names(self) -> list[str]:
        """The names that clients can use."""
        return [*dict.fromkeys([*(self.upstream.models or self.listed), *self.upstream.aliases])]


async def survey(upstreams: Iterable[Upstream]) -> list[UpstreamReport]:
    """Return a report on each upstream, after `PROBE_SECONDS` twice at most."""
    return await asyncio.gather(*map(_examine, upstreams))


async def _examine(upstream: Upstream) -> UpstreamReport:
    client, error = upstream.client, None
    try:
        if listed := await _list(client, client.url):
            return UpstreamReport(upstream, listed)
    except ApiError as raised:
        error = raised
        if client.pass_key and error.status in UNAUTHORIZED:
            return UpstreamReport(upstream)
    if (error is None or error.status in MISPLACED) and (error is None or error.code != "upstream_unreachable"):
        urls = [*_other_urls(client.url)]
        lists = await asyncio.gather(*(_list(client, url) for url in urls), return_exceptions=True)
        for url, found in zip(urls, lists, strict=True):
            if found and not isinstance(found, BaseException):
                return UpstreamReport(upstream, fault=f"lists no models, but {url} does: its URL must be {url}", is_lost=True)
    if error is None or error.status in UNLISTED:
        return UpstreamReport(upstream, fault=None if upstream.models else "lists no models")
    is_lost = error.code == "upstream_unreachable"
    return UpstreamReport(upstream, fault=f"does not list its models: {error}{_reason(error)}", is_lost=is_lost)


def _reason(error: ApiError) -> str:
    """Return why a connection failed, as the system says it; clients do not learn that."""
    cause = error.__cause__
    return "" if cause is None else f" ({cause.__cause__ or cause})"


async def _list(client: UpstreamClient, url: str) -> Sequence[str]:
    """Return the models that an upstream lists below a URL, with a client of its own, which this event loop closes."""
    own = evolve(client, url=url)
    try:
        return [*models_in(await own.fetch("models", limit=PROBE_SECONDS, is_probe=True))]
    finally:
        await own.close()


def _other_urls(url: str) -> Iterator[str]:
    """Yield the URLs that may be meant by one whose path is wrong."""
    parts = urlsplit(url)
    path = parts.path
    for endpoint in ENDPOINTS:
        path = path.removesuffix(endpoint)
    bare = path
    while bare.endswith("/v1"):
        bare = bare.removesuffix("/v1")
    for other in dict.fromkeys((path, f"{bare}/v1", bare, "/v1")):
        if other != parts.path:
            yield f"{parts.scheme}://{parts.netloc}{other}"
