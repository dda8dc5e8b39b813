"""A server of one's own, typed with public names alone. `make lint` checks this file with mypy and pyright; nothing runs it."""

from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, assert_type

from interlock import Chunk, FinishReason, Format, StopParser, Tagged, parser_for
from interlock.serve import (
    AddressPolicy,
    ApiError,
    Application,
    Engine,
    EngineError,
    EngineOutput,
    Generation,
    HostedTool,
    LocalFunction,
    LocalTool,
    ModelFacts,
    ResponseRequest,
    ResponseStore,
    Settings,
    ToolError,
    ToolFailedError,
    ToolRunner,
    Tools,
    ToolServers,
    ToolSession,
    Turn,
    build,
    open_store,
)


class Toy(Engine):
    models: Sequence[str] = ("toy",)
    format: Format = Tagged("hermes")

    def facts(self, name: str) -> ModelFacts:
        return ModelFacts(window=4096)

    def read(self, raw: Mapping[str, object]) -> ResponseRequest:
        return super().read(raw)

    async def begin(
        self, request: ResponseRequest, items: Sequence[Mapping[str, object]], tenant: str = "", connection: Any = None
    ) -> Generation:
        parser = StopParser(parser_for(self.format, request.declare_tools(items)), request.extensions.get("stop"))
        return ToyGeneration(self, parser)

    async def admit(self, turn: Turn) -> None:
        raise ApiError(429, "The toy is asleep.", "rate_limit_exceeded", retry_after=5)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        assert_type(turn.messages(Tagged("kimi_k2")), list[dict[str, object]])
        assert_type(turn.functions({"web_search": ""}), list[dict[str, object]])
        assert_type(await turn.harmony_tokens(), list[int])
        reason: FinishReason = "stop"
        yield EngineOutput(Chunk([5], "Hello"), reason)
        raise EngineError("The toy broke.")


class ToyGeneration(Generation):
    async def count(self, turn: Turn) -> int:
        return len(turn.messages())


class Search:
    description = "Searches nothing."

    def session(
        self,
        tenant: str,
        container_id: str,
        earlier: Sequence[str] = (),
        domains: Mapping[str, object] = {},
    ) -> ToolSession:
        return self

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        raise ToolFailedError("Nothing was found.") if arguments else ToolError("The tool cannot be called.")

    async def close(self) -> None:
        pass


class Runner:
    @property
    def hosted(self) -> Container[HostedTool]:
        return ("web_search",)

    def begin(
        self, request: ResponseRequest, items: Sequence[Mapping[str, object]], tenant: str
    ) -> AbstractAsyncContextManager[Tools]:
        return ToolServers().begin(request, items, tenant)

    async def close(self) -> None:
        pass


tool: LocalTool = Search()
store: ResponseStore = open_store("memory:")
runners: list[ToolRunner] = [Runner(), ToolServers({"web_search": tool}, AddressPolicy.of(["tools.example.com"]))]
app: Application = build(Settings(), Toy(), store=store, tools=runners[0])


async def roll(sides: int) -> str:
    return str(sides)


rolling: Application = build(Settings(), Toy(), functions={"dice": [LocalFunction("roll", "Rolls a die.", {}, roll)]})
