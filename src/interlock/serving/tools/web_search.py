"""The web search that the server itself runs: a search API finds pages, and the server opens them.

Each page has a number in its response, by which the model opens and cites it. The server fetches pages at public addresses only,
and checks every redirect.
"""

from __future__ import annotations

import asyncio
import codecs
import html
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from posixpath import normpath
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import orjson
from attrs import define, evolve, field, frozen

from interlock.events.items import NOTHING
from interlock.events.json import as_text, elements, members
from interlock.serving.engines.pages import pages_of
from interlock.serving.requests.api_errors import ToolError, ToolFailedError
from interlock.serving.requests.runtime import Yielder
from interlock.serving.tools.address import AddressPolicy
from interlock.serving.tools.hosting import cited_numbers
from interlock.serving.tools.mcp_session import GuardedTransport, TooLarge, http_client

READER: Final = Path(__file__).with_name("page_reader.py")

SEARCH_SECONDS: Final = 15.0
OPEN_SECONDS: Final = 20.0
"""The most seconds to fetch a page."""
READ_SECONDS: Final = 20.0
"""The most seconds for the process that reads a page."""
PAGE_BYTES: Final = 2_000_000
"""The most bytes of a page; the rest is not read."""
REDIRECTS: Final = 5
READERS: Final = 4
"""The most pages that are read at once; each takes a process."""
RESULTS: Final = 8
MOST_RESULTS: Final = 20
SNIPPET: Final = 500
"""The most characters of a result's text, or of a line that was found."""
TITLE: Final = 200
"""The most characters of a page's title."""
ADDRESS: Final = 2_000
"""The most characters of a URL, a query or a pattern."""
SLICE: Final = 65_536
"""The most characters of a line that are split or searched in one go; only a word may be longer."""
SLICES: Final = re.compile(rf"(?s:.{{1,{SLICE}}})\S*")
"""Matches a slice, up to the end of a word."""
MAX_ANSWER: Final = 20_000
"""The most characters of one answer; the model can open a page at a later line."""
MATCHES: Final = 50
OPENED_AT_ONCE: Final = 16
"""The most pages that are fetched or read at once, so that their bytes stay below `OPENED_AT_ONCE * PAGE_BYTES`."""

CHARSET: Final = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
TAG: Final = re.compile(r"<[^<>]*>")
UNSAFE: Final = re.compile(r"[\s()]")
"""What would end the URL in the heading of a page."""


ProviderRequest: TypeAlias = tuple[str, str, Mapping[str, str], Mapping[str, object] | None]
"""The method, URL, headers and JSON of a request to a search API."""


@frozen
class Provider:
    """A search API."""

    url: str  # unless the operator names another; empty for an API that everybody hosts
    variable: str  # of the environment, with its key; empty if it needs none
    ask: Callable[[str, str, str, int], ProviderRequest]  # for a URL, a key, a query and a number of results
    path: tuple[str, ...] = ("results",)  # to the results in the answer
    texts: tuple[str, ...] = ("content",)  # the fields of a result that may have its text


def _ask_searxng(url: str, _key: str, query: str, _count: int) -> ProviderRequest:
    return "GET", f"{url.rstrip('/')}/search?{urlencode({'q': query, 'format': 'json'})}", {}, None


def _ask_brave(url: str, key: str, query: str, count: int) -> ProviderRequest:
    return "GET", f"{url}?{urlencode({'q': query, 'count': count})}", {"X-Subscription-Token": key}, None


def _ask_tavily(url: str, key: str, query: str, count: int) -> ProviderRequest:
    return "POST", url, {"Authorization": f"Bearer {key}"}, {"query": query, "max_results": count}


def _ask_exa(url: str, key: str, query: str, count: int) -> ProviderRequest:
    return "POST", url, {"x-api-key": key}, {"query": query, "numResults": count, "contents": {"highlights": True}}


PROVIDERS: Final[Mapping[str, Provider]] = {
    "searxng": Provider("", "", _ask_searxng),
    "brave": Provider(
        "https://api.search.brave.com/res/v1/web/search", "BRAVE_API_KEY", _ask_brave, ("web", "results"), ("description",)
    ),
    "tavily": Provider("https://api.tavily.com/search", "TAVILY_API_KEY", _ask_tavily),
    "exa": Provider("https://api.exa.ai/search", "EXA_API_KEY", _ask_exa, texts=("highlights", "summary", "text")),
}
"""The search APIs, by the names in `--web-search`."""


@frozen
class FoundPage:
    """A page that was found or opened; `lines` is None until it is opened."""

    url: str
    title: str
    lines: tuple[str, ...] | None = None


def allows(filters: Mapping[str, object], url: str) -> bool:
    """Return whether the filters of a web search let the model see a page; they have domains, or beginnings of paths on them."""
    allowed, blocked = (filters.get(name) for name in ("allowed_domains", "blocked_domains"))
    is_allowed = allowed is None or any(_is_on(url, as_text(domain)) for domain in elements(allowed))
    return is_allowed and not any(_is_on(url, as_text(domain)) for domain in elements(blocked))


def _is_on(url: str, domain: str) -> bool:
    """Return whether a page is on a domain or one below it, and below its path if it has one."""
    name, _, path = domain.rpartition("://")[2].partition("/")
    try:
        parts = urlsplit(url)
    except ValueError:  # nobody can fetch it
        return False
    host = (parts.hostname or "").lower().rstrip(".")
    place = normpath(f"/{parts.path}").lstrip("/")
    if path.endswith("*"):
        is_below = place.startswith(path.rstrip("*"))
    else:
        is_below = not path or f"{place}/".startswith(f"{path.rstrip('/')}/")
    return f".{host}".endswith(f".{name.lower().removeprefix('*.')}") and is_below


@define(eq=False)
class WebSearch:
    """Searches with a provider, and opens pages at the addresses that the policy allows: by default, all public ones."""

    provider: Provider
    url: str
    key: str = field(default="", repr=False)
    policy: AddressPolicy = field(factory=lambda: AddressPolicy.of(["*"]))
    _opening: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(OPENED_AT_ONCE), init=False)
    _readers: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(READERS), init=False)

    @classmethod
    def of(cls, setting: str, environment: Mapping[str, str] = os.environ) -> WebSearch:
        """Read a setting: the name of a provider, or `NAME=URL`.

        Raises:
            ValueError: The provider is unknown, needs a URL, or its key is not in the environment.
        """
        name, _, url = setting.partition("=")
        provider = PROVIDERS.get(name)
        if provider is None:
            raise ValueError(f"unknown provider {name!r}; choose one of {', '.join(PROVIDERS)}")
        url = url or provider.url
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ValueError(f"{name} needs the URL of its server: {name}=http://127.0.0.1:8080")
        if provider.variable and not environment.get(provider.variable):
            raise ValueError(f"{name} needs a key in the environment variable {provider.variable}")
        if find_spec("resiliparse") is None:
            raise ValueError("resiliparse is not installed; in a checkout of Interlock: pip install '.[tools]'")
        return cls(provider, url, environment.get(provider.variable, ""))

    @property
    def description(self) -> str:
        """What models read about the tool: the usual text."""
        return ""

    def session(
        self, tenant: str, container_id: str, earlier: Sequence[str] = (), domains: Mapping[str, object] = NOTHING
    ) -> SearchSession:
        """Return the session of a response, which goes on with the numbers of the pages in `earlier` texts."""
        del tenant, container_id
        pages = {page.number: FoundPage(page.url, page.title) for text in earlier for page in pages_of(text)}
        cited = max((number for text in earlier for number in cited_numbers(text)), default=-1)
        return SearchSession(self, pages, max(cited, *pages, -1) + 1, domains)

    async def close(self) -> None:
        """Do nothing: no connection outlives a call."""

    async def search(self, query: str, count: int) -> list[tuple[FoundPage, str]]:
        """Return the pages that the provider finds, and the texts of its results; or raise `ToolError`."""
        if len(query) > ADDRESS:
            raise ToolFailedError(f"The query is longer than {ADDRESS} characters.")
        method, url, headers, body = self.provider.ask(self.url, self.key, query, count)
        try:
            async with asyncio.timeout(SEARCH_SECONDS), http_client(policy=None, faults=[]) as client:
                response = await client.request(method, url, headers=headers, json=body)
            results: object = orjson.loads(response.content) if response.is_success else None
        except TimeoutError:
            raise ToolError(f"The search did not answer within {SEARCH_SECONDS:g} seconds.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, ValueError) as error:
            raise ToolError(f"The search failed: {_reason(error)}") from error
        if results is None:
            raise ToolError(f"The search answers HTTP {response.status_code}.")
        for name in self.provider.path:
            results = members(results).get(name)
        return [*self._read_results(elements(results))][:count]

    def _read_results(self, results: Iterable[object]) -> Iterable[tuple[FoundPage, str]]:
        for result in map(members, results):
            url = _web_address(as_text(result.get("url")))
            if url is not None:
                texts = (_plain(result.get(name), SNIPPET) for name in self.provider.texts)
                yield FoundPage(_safe(url), _plain(result.get("title"), TITLE) or url[:TITLE]), next(filter(None, texts), "")

    async def open(self, url: str) -> FoundPage:
        """Fetch and read a page, or raise `ToolError`."""
        if _web_address(url) is None:
            raise ToolFailedError(f"The page cannot be fetched: {url[:TITLE]!r} is not the URL of a web page.")
        try:
            await asyncio.wait_for(self._opening.acquire(), OPEN_SECONDS)
        except TimeoutError:
            raise ToolError(f"The server fetches {OPENED_AT_ONCE} other pages at the moment.") from None
        try:
            return await self._open(url)
        finally:
            self._opening.release()

    async def _open(self, url: str) -> FoundPage:
        try:
            async with asyncio.timeout(OPEN_SECONDS), self._client() as client, client.stream("GET", url) as response:
                if not response.is_success:
                    raise ToolFailedError(f"The page answers HTTP {response.status_code}.")
                kind, _, parameters = response.headers.get("content-type", "text/html").partition(";")
                kind = kind.strip().lower()
                is_html = kind in {"text/html", "application/xhtml+xml"}
                if not is_html and not kind.startswith("text/") and kind != "application/json":
                    raise ToolFailedError(f"The page is of the type {kind[:TITLE]!r}, which cannot be read.")
                raw, final = await _read_beginning(response), str(response.url)
        except TimeoutError:
            raise ToolFailedError(f"The page did not arrive within {OPEN_SECONDS:g} seconds.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, UnicodeError) as error:
            raise ToolFailedError(f"The page cannot be fetched: {_reason(error)}") from error
        charset = _charset(parameters)
        if is_html:
            async with self._readers:
                title, text = await _read_html(raw, charset)
        else:
            title, text = "", raw.decode(charset or "utf-8", errors="replace")
        return FoundPage(_safe(final), " ".join(title.split())[:TITLE] or final[:TITLE], await _split_lines(text))

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=PageTransport(self.policy, []),
            headers={"Accept-Encoding": "identity", "User-Agent": "Interlock"},
            timeout=OPEN_SECONDS,
            follow_redirects=True,
            max_redirects=REDIRECTS,
            trust_env=False,
        )


class PageTransport(GuardedTransport):
    """Checks the destination of every request and redirect, and leaves the size of the answer to its reader."""

    async def _bounded(self, response: httpx2.Response) -> httpx2.Response:
        if response.has_redirect_location:  # the client would read its body to the end, and nobody wants it
            await response.aclose()
            return httpx2.Response(response.status_code, headers={"location": response.headers["location"]})
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise ToolFailedError("The page is compressed, although the server asked for it not to be.")  # may be a bomb
        return response


async def _read_beginning(response: httpx2.Response) -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) >= PAGE_BYTES:
            break
    return bytes(raw[:PAGE_BYTES])


async def _split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a page without blank ones, each with single spaces."""
    yielder, lines = Yielder(), list[str]()
    for line in text.splitlines():
        words: list[str] = []
        for piece in SLICES.finditer(line):
            words += piece[0].split()
            await yielder.checkpoint()
        if words:
            lines.append(" ".join(words))
    return tuple(lines)


def _charset(parameters: str) -> str:
    """Return the character encoding that the parameters of a content type name; empty if they name none that Python knows."""
    named = CHARSET.search(parameters)
    with suppress(LookupError):
        return codecs.lookup(named[1]).name if named else ""
    return ""


async def _read_html(raw: bytes, charset: str) -> tuple[str, str]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-I", str(READER), charset)
    reader = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env={})
    try:
        written, _ = await asyncio.wait_for(reader.communicate(raw), READ_SECONDS)
    except TimeoutError:
        written = b""
    finally:
        if reader.returncode is None:
            reader.kill()
            await reader.wait()
    if reader.returncode or not written:
        raise ToolFailedError("The page cannot be read: it needs too much time or memory.")
    page = members(orjson.loads(written))
    return as_text(page.get("title")), as_text(page.get("text"))


@define(eq=False)
class SearchSession:
    """The web search of one response."""

    _web: WebSearch
    _pages: dict[int, FoundPage]  # by their numbers, those of earlier responses too
    _following: int  # the number of the next page
    _filters: Mapping[str, object] = NOTHING
    _latest: int = field(default=-1, init=False)

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """Search, open or find; the text shows each page with its number, as `【number†…】` cites it.

        Raises:
            ToolFailedError: The page cannot be fetched or read, or has no such number.
            ToolError: The search fails, the web search has no such tool, or an argument is missing.
        """
        match name, arguments:
            case "search", {"query": str(query)}:
                return await self._search(query, arguments.get("topn"))
            case "open", _:
                number = await self._open(arguments)
                return self._show(number, _natural(arguments.get("loc")) or 0, _natural(arguments.get("num_lines")))
            case "find", {"pattern": str(pattern)}:
                return await self._find(await self._open(arguments), pattern[:ADDRESS])
            case _:
                raise ToolError(f"The web search has no tool '{name[:TITLE]}', or the call lacks an argument.")

    async def _search(self, query: str, count: object) -> str:
        found = await self._web.search(query, min(_natural(count) or RESULTS, MOST_RESULTS))
        found = [each for each in found if allows(self._filters, each[0].url)]
        shown: list[str] = []
        size = 0
        for page, text in found:
            result = f"{self._heading(self._add(page))}\nL0: {text}"
            size += len(result)
            if size > MAX_ANSWER:
                break
            shown.append(result)
        return "\n\n".join(shown) or f"Nothing was found for {query!r}."

    def _add(self, page: FoundPage) -> int:
        """Return the number of a page: that of an earlier page with its URL, or a new one."""
        number = next((number for number, each in self._pages.items() if each.url == page.url), None)
        if number is None:
            number, self._following = self._following, self._following + 1
            self._pages[number] = page
        elif page.lines is not None:
            self._pages[number] = page
        return number

    async def _open(self, arguments: Mapping[str, object]) -> int:
        """Return the number of the page that a call means, once it has been opened."""
        named = arguments.get("id", arguments.get("url"))
        if isinstance(named, str) and named:
            self._latest = self._add(await self._fetch(named))
            return self._latest
        cursor = arguments.get("cursor")
        number = next((each for each in (named, cursor) if isinstance(each, int) and each >= 0), self._latest)
        page = self._pages.get(number)
        if page is None:
            raise ToolFailedError(f"There is no page {number}.")
        if page.lines is None:
            self._pages[number] = evolve(await self._fetch(page.url), url=page.url)
        self._latest = number
        return number

    async def _fetch(self, url: str) -> FoundPage:
        """Fetch a page, unless it, or the page that it leads to, is on a domain that the model may not see."""
        page = await self._web.open(url) if allows(self._filters, url) else None
        if page is None or not allows(self._filters, page.url):
            raise ToolFailedError("The request does not allow pages of this domain.")
        return page

    def _heading(self, number: int) -> str:
        page = self._pages[number]
        return f"[{number}] {page.title} ({page.url})"

    def _show(self, number: int, start: int, count: int | None) -> str:
        lines = self._pages[number].lines or ()
        shown = [self._heading(number)]
        size = len(shown[0])
        for index, line in enumerate(lines[start : None if count is None else start + count], start):
            numbered = f"L{index}: {line}"
            size += len(numbered) + 1
            if size > MAX_ANSWER and len(shown) > 1:
                shown.append(f"The page goes on at line {index} of {len(lines)}.")
                break
            shown.append(numbered[: MAX_ANSWER - len(shown[0])])
        return "\n".join(shown)

    async def _find(self, number: int, pattern: str) -> str:
        yielder, wanted = Yielder(), pattern.casefold()
        shown = [self._heading(number)]
        size = len(shown[0])
        for index, line in enumerate(self._pages[number].lines or ()):
            if await _contains(line, wanted, yielder):
                shown.append(f"L{index}: {line[:SNIPPET]}")
                size += len(shown[-1]) + 1
                if size > MAX_ANSWER or len(shown) > MATCHES:
                    break
        return "\n".join(shown if len(shown) > 1 else [shown[0], f"{pattern[:TITLE]!r} is not on this page."])


async def _contains(line: str, wanted: str, yielder: Yielder) -> bool:
    """Return whether a line contains a text, which is casefolded; a long line is searched in slices that overlap."""
    for start in range(0, max(len(line), 1), SLICE):
        await yielder.checkpoint()
        if wanted in line[start : start + SLICE + len(wanted)].casefold():
            return True
    return False


def _web_address(url: str) -> str | None:
    """Return a URL if it is one of a web page that can be fetched, else None."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return None
    return url if fits and len(url) <= ADDRESS else None


def _plain(value: object, limit: int) -> str:
    """Return the text of a result's field, which may have tags or be a list, on one line of at most `limit` characters."""
    text = " … ".join(map(as_text, elements(value)[:MATCHES])) or as_text(value)
    return " ".join(html.unescape(TAG.sub("", text[:MAX_ANSWER])).split())[:limit]


def _natural(value: object) -> int | None:
    """Return a positive integer, or None for any other value."""
    return value if isinstance(value, int) and value > 0 else None


def _safe(url: str) -> str:
    """Return a URL without characters that would end it in a heading."""
    return UNSAFE.sub(lambda match: quote(match[0]), url)


def _reason(error: Exception) -> str:
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "the server cannot be reached."
        case httpx2.TooManyRedirects():
            return f"it redirects more than {REDIRECTS} times."
        case TooLarge():
            return str(error)
        case ValueError():
            return "the answer is not what it should be."
        case _:
            return f"{type(error).__name__}."
