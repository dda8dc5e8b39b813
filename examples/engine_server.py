"""Serve your own engine to clients of all three APIs: reasoning, calls, a function of the server, and limits.

    pip install '.[serve]' jinja2        # in a checkout
    python examples/engine_server.py --port 8004

The model is a stand-in that writes as Qwen 3 does: replace `sample` and the template. docs/library/engines.md explains this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import uvicorn
from jinja2 import Environment

from interlock import Chunk, FinishReason, Tagged
from interlock.serve import Engine, EngineError, EngineOutput, LocalFunction, Settings, ToolFailedError, Turn, build

TEMPLATES: Final = Environment(trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - a prompt is not HTML
TEMPLATE: Final = TEMPLATES.from_string("""\
{% for tool in tools %}
[function] {{ tool.function.name }}: {{ tool.function.description }}
{% endfor %}
{% for message in messages %}
[{{ message.role }}] {{ message.content }}{% for call in message.tool_calls %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor +%}
{% endfor %}
[assistant]{{ " <think>" if thinks }}""")


def sample(prompt: str) -> Iterator[tuple[int, str]]:
    """Yield the tokens of a turn, each with its id: calls of the functions that the user names, their results, or an echo.

    It ignores `tool_choice`, `temperature` and the like: a model keeps them, such as `required` by a grammar.
    """
    functions = re.findall(r"^\[function\] ([\w-]+)", prompt, re.MULTILINE)
    question, *rest = prompt.rpartition("[user] ")[2].splitlines() or [""]
    results = [line.removeprefix("[tool] ") for line in rest if line.startswith("[tool] ")]
    called = [] if results else [name for name in functions if name.rpartition("__")[2] in question.split()]
    calls = [json.dumps({"name": name, "arguments": {"city": question.split()[-1]}}) for name in called]
    answer = "".join(f"<tool_call>{call}</tool_call>" for call in calls) or " ".join(results) or question
    thoughts = f"{'I should look it up.' if calls else 'I can answer.'}\n</think>\n\n" if prompt.endswith("<think>") else ""
    for number, token in enumerate(re.findall(r"\S+\s*", thoughts + answer)):
        if token.strip() == "fail":
            raise EngineError("The model was asked to fail.")
        yield number, token


class Forecaster(Engine):
    """Samples a turn in a thread, and ends it at the client's limit."""

    models = ("forecaster",)
    format = Tagged("hermes", "qwen3")

    def render(self, turn: Turn) -> str:
        """Return the prompt of a turn."""
        thinks = turn.request.reasoning_effort != "none"
        return TEMPLATE.render(messages=turn.messages(), tools=turn.functions(), thinks=thinks)

    async def generate(self, turn: Turn) -> AsyncGenerator[EngineOutput, None]:
        """Yield each token when the model has it."""
        prompt = self.render(turn)
        tokens, count, size = sample(prompt), 0, len(prompt.split())
        reason: FinishReason = "length"
        while count != turn.budget:
            token = await asyncio.to_thread(next, tokens, None)  # a step of the model blocks
            if token is None:
                reason = "stop"
                break
            count += 1
            number, text = token
            yield EngineOutput(Chunk([number], text), input_tokens=size)
        yield EngineOutput(Chunk(), reason)


async def forecast(city: str) -> str:
    """Return the weather of a city; after a `ToolFailedError`, the model reads the message and goes on."""
    if city not in {"Berlin", "Rome"}:
        raise ToolFailedError(f"There is no forecast for {city}.")
    return f"It rains in {city}."


CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORECAST: Final = LocalFunction("forecast", "Returns the weather of a city.", CITY, forecast)

app = build(Settings(), Forecaster(), functions={"weather": [FORECAST]})

if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=8004)
    uvicorn.run(app, host="127.0.0.1", port=arguments.parse_args().port)
