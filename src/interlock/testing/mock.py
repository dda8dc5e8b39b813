"""A mock of a model's server, whose answers a test scripts: `Mock`, and `MockServer`, which several mocks share.

docs/guides/mock.md describes it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final, Literal, Self

from msgspec.structs import replace

try:
    from starlette.types import Receive, Scope, Send

    from interlock.serving.build import build
    from interlock.serving.engines.script import (
        MOCKED,
        Call,
        Ending,
        Failure,
        ScriptedEngine,
        ScriptedRequest,
        ScriptRule,
        ScriptStep,
        Tokens,
        When,
        checked,
        find_cover,
        read_rules,
        verdict_of,
    )
    from interlock.serving.http.answers import error_response
    from interlock.serving.http.app import Application
    from interlock.serving.http.script_faults import at_path, encoded_path
    from interlock.serving.http.server import ServerThread
    from interlock.serving.requests.api_errors import ApiError
    from interlock.serving.settings import Settings
    from interlock.serving.tools.hosting import ScriptedTools
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"the mock of interlock.testing needs {error.name}: pip install 'interlock[testing]' (in a checkout, '.[testing]')",
        name=error.name,
    ) from error

KEY: Final = "interlock"
"""The API key in the environment of a test; the mock accepts every key."""
LOCAL: Final = "127.0.0.1"


class Scenario:
    """A rule of a mock. Its methods add to its last step, and return the scenario; `then` begins the next step."""

    def __init__(self, rules: list[ScriptRule], rule: ScriptRule) -> None:
        """Add a rule without steps to the rules of a mock."""
        self._rules, self._index = rules, len(rules)
        rules.append(rule)

    @property
    def then(self) -> Scenario:
        """The scenario with another step: the model's next turn, or what the same request gets after a fault."""
        if not self._steps:
            raise ValueError("write the first step before .then")
        return self._write([*self._steps, ScriptStep()])

    def thinks(self, text: str) -> Scenario:
        """Write reasoning."""
        return self._add(thinks=text)

    def says(self, text: str | dict[str, object] | list[object]) -> Scenario:
        """Write a message; an object is written as JSON."""
        return self._add(says=text)

    def refuses(self, text: str) -> Scenario:
        """Write a refusal."""
        return self._add(refuses=text)

    def calls(self, name: str, arguments: str | Mapping[str, object] = "", /, **fields: object) -> Scenario:
        """Call a tool with the fields of its arguments, or with arguments as an object or as text that is sent as it is.

        Several calls of a step are parallel calls.
        """
        whole = arguments if isinstance(arguments, str) and arguments else {**dict(arguments or {}), **fields}
        return self._set(calls=[*self._last.calls, checked(Call(name, whole))])

    def returns(self, output: str) -> Scenario:
        """Return this from the last call, which is of a hosted tool, such as `web_search`, that the mock runs.

        Raises:
            ValueError: The step has no call.
        """
        calls = self._last.calls
        if not calls:
            raise ValueError("write the call before .returns(…)")
        return self._set(calls=[*calls[:-1], replace(calls[-1], returns=output)])

    def writes(self, text: str) -> Scenario:
        """Write raw output in the format of the family that `when` names, which may be malformed."""
        return self._add(writes=text)

    def uses(
        self,
        *,
        input_tokens: int = 0,
        cached_tokens: int = 0,
        cache_write_tokens: int = 0,
        output_tokens: int = 0,
        reasoning_tokens: int = 0,
    ) -> Scenario:
        """Report these tokens as the usage of the step; the mock counts or estimates what is 0."""
        tokens = Tokens(input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens)
        return self._add(uses=checked(tokens))

    def waits(self, seconds: float, *, between: float = 0.0) -> Scenario:
        """Wait before the output or the error, and `between` two chunks of the output."""
        return self._add(waits=seconds, between=between)

    def ends(self, reason: Ending) -> Scenario:
        """End the model's turn for a reason other than `stop`, such as `length`."""
        return self._add(ends=reason)

    def fails(self, status: int, message: str = Failure(500).message, *, retry_after: float | None = None) -> Scenario:
        """Answer with an HTTP error, perhaps with the header `Retry-After`."""
        return self._add(fails=checked(Failure(status, message, retry_after)))

    def disconnects(self, *, after: int = 0) -> Scenario:
        """Break the connection after this many events."""
        return self._add(disconnects=after)

    def stops(self, *, after: int = 0) -> Scenario:
        """End the stream after this many events, without its last ones."""
        return self._add(stops=after)

    def breaks(self, rule: str) -> Scenario:
        """Break a rule, such as R7, in the stream; see `interlock.testing.RULES`."""
        return self._add(breaks=rule)

    @property
    def _steps(self) -> list[ScriptStep]:
        return self._rules[self._index].steps

    @property
    def _last(self) -> ScriptStep:
        return (self._steps or [ScriptStep()])[-1]

    def _add(self, **fields: object) -> Scenario:
        for name in fields:
            if getattr(self._last, name) != getattr(ScriptStep(), name):
                raise ValueError(f"a step {name} once; write .then before the next step")
        return self._set(**fields)

    def _set(self, **fields: object) -> Scenario:
        return self._write([*self._steps[:-1], checked(replace(self._last, **fields))])

    def _write(self, steps: list[ScriptStep]) -> Scenario:
        self._rules[self._index] = replace(self._rules[self._index], steps=steps)
        return self


MockRequest = ScriptedRequest


class MockServer:
    """A server in a thread, which several mocks share, one after another or at once: a context manager."""

    def __init__(self) -> None:
        """Create the server, which does not run yet."""
        self._thread = ServerThread(self._serve)
        self._mocks: dict[str, tuple[Mock, Application]] = {}
        self._names = map(str, count(1))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._url = ""

    def __enter__(self) -> Self:
        """Start the server."""
        self._url = self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._thread.stop()

    def open(self, mock: Mock) -> tuple[str, Callable[[], None]]:
        """Serve a mock, and return its URL and a function that ends it."""
        name, engine = next(self._names), ScriptedEngine(mock.rules)
        app = build(Settings(), engine, tools=ScriptedTools(engine))
        lifespan = app.router.lifespan_context(app)
        loop = self._loop
        assert loop is not None  # noqa: S101 - the server has started
        asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result()
        self._mocks[name] = mock, app

        def close() -> None:
            del self._mocks[name]
            asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result()

        return f"{self._url}/{name}", close

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request for a mock, whose name is the first part of the path."""
        if scope["type"] == "lifespan":
            self._loop = asyncio.get_running_loop()
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        _, name, path = [*encoded_path(scope).split("/", 2), ""][:3]
        scope = at_path(scope, f"/{path}")
        if name not in self._mocks:
            error = ApiError(410, "The test of this mock has ended.", code="mock_ended")
            await error_response(error)(scope, receive, send)
            return
        mock, app = self._mocks[name]
        await app({**scope, MOCKED: mock.requests}, receive, send)


class Mock:
    """A mock: a context manager, which ends with `verify`. Without a `server`, it has one of its own.

    `rules` has the rules so far, and `requests` the requests that the mock has received, in order. `url` is the base URL for
    clients of Messages, and `base_url` the one for clients of OpenAI's APIs.
    """

    def __init__(self, script: str | Path | None = None, *, server: MockServer | None = None, strict: bool = False) -> None:
        """Create a mock with the rules of a script, if there is one.

        If it is `strict`, `verify` also fails for unused steps, and for calls of tools that a request does not offer.

        Raises:
            InterlockError: The script is invalid.
            OSError: The file cannot be read.
        """
        self.rules: list[ScriptRule] = [] if script is None else [*read_rules(Path(script))]
        self.requests: list[MockRequest] = []
        self.url = ""
        self._server, self._strict = server, strict
        self._exits = ExitStack()

    @property
    def base_url(self) -> str:
        """The base URL for clients of OpenAI's APIs."""
        return f"{self.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that lead the SDKs of OpenAI and Anthropic to the mock."""
        direct = ",".join(filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), LOCAL]))
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "NO_PROXY": direct,
            "no_proxy": direct,
        }

    def when(
        self,
        text: str | re.Pattern[str] | None = None,
        *,
        instructions: str | None = None,
        tools: str | Sequence[str] = (),
        model: str | None = None,
        turn: int | None = None,
        family: str | None = None,
        per: Literal["conversation", "server"] = "conversation",
    ) -> Scenario:
        """Begin a scenario for the requests that match; the first one that matches answers.

        Args:
            text: A part of the user's message, in upper or lower case, or a pattern that is found in it.
            instructions: A part of the system prompt, in upper or lower case.
            tools: Names of tools that the request offers, among others.
            model: The name of the model.
            turn: The number of the model's turn in the conversation, from 1; by default, one that answers the user.
            family: The family of models in whose format the output is written, which is then parsed; `harmony` for gpt-oss.
            per: Whether the turns of each conversation count the steps, or all requests of a test.

        Raises:
            ValueError: The pattern has flags, the family or a condition is none, or an earlier rule answers all of its requests.
        """
        pattern = text.pattern if isinstance(text, re.Pattern) else None
        if isinstance(text, re.Pattern) and text.flags != re.compile(text.pattern).flags:
            raise ValueError("write the flags into the pattern, such as (?i)")
        when = When(
            text=None if isinstance(text, re.Pattern) else text,
            pattern=pattern,
            instructions=instructions,
            tools=[tools] if isinstance(tools, str) else [*tools],
            model=model,
            turn=turn,
        )
        if (index := find_cover(self.rules, checked(when))) is not None:
            raise ValueError(f"rule {index + 1} ({self.rules[index].conditions}) answers all requests with {when}")
        return Scenario(self.rules, checked(ScriptRule(steps=[], when=when, family=family, per=per)))

    @property
    def verdict(self) -> dict[str, list[str]]:
        """What is wrong so far: the lists `problems`, `unoffered` (tools) and `unused` (steps), empty if nothing is."""
        return verdict_of(self.rules, self.requests)

    def verify(self) -> None:
        """Assert that requests had answers, calls had outputs, and streams were legal, unless their scenario spoils them.

        Raises:
            AssertionError: The verdict has problems; the message lists all of them.
        """
        verdict = self.verdict
        problems = verdict["problems"]
        if self._strict:
            problems += [f"no request has taken {step}" for step in verdict["unused"]]
            problems += [f"the script calls the tool {name!r}, which its request does not offer" for name in verdict["unoffered"]]
        if problems:
            raise AssertionError("\n".join(problems))

    def __enter__(self) -> Self:
        """Start to serve the mock."""
        with ExitStack() as exits:
            server = self._server or exits.enter_context(MockServer())
            self.url, close = server.open(self)
            exits.callback(close)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the mock, and verify it unless an error ends the context."""
        self._exits.close()
        if kind is None:
            self.verify()
