"""What a type checker knows of events and parsers. `make lint` checks this file with mypy and pyright; nothing runs it."""

from typing import Any, Literal, assert_never, assert_type

from interlock import AnyEvent, Chunk, EventWriter, Finish, ResponseDriver, Start, Tagged, Usage, driver_for, parser_for
from interlock.events.items import FunctionCall
from interlock.events.stream import ItemDone, ProgressEvent, TextDelta

request: dict[str, Any] = {"model": "m", "input": "Hello"}
parser = parser_for(Tagged("hermes"), request)

assert_type(driver_for(request), ResponseDriver[bytes])
driver = driver_for(request, writer=EventWriter())
assert_type(driver, ResponseDriver[AnyEvent])

for event in driver.feed([Start(), *parser.feed(Chunk(text="Hello")), *parser.end("stop", Usage()), Finish()]):
    if event.type == "response.output_text.delta":
        assert_type(event, TextDelta)
        assert_type(event.delta, str)
    elif event.type == "response.output_item.done":
        assert_type(event, ItemDone)
        if event.item.type == "function_call":
            assert_type(event.item, FunctionCall)
            assert_type(event.item.arguments, str)
    elif event.type == "response.mcp_call.failed":
        assert_type(event, ProgressEvent)
    event.delta  # type: ignore[union-attr]  # pyright: ignore  # noqa: B018, PGH003


def name(event: TextDelta | ItemDone) -> Literal["text", "item"]:
    match event.type:
        case "response.output_text.delta":
            return "text"
        case "response.output_item.done":
            return "item"
        case _:
            assert_never(event)


for reason in ("tool_calls", "function_call", "length", "content_filter", "abort", "error"):
    parser.end(reason, Usage())
parser.end("tools", Usage())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
