"""The `anthropic` package: its accumulator of streams, tools, and thinking that is sent back with its signature."""

import anthropic
from conversation import API_KEY, MODEL, QUESTION, each, get_weather

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}
THINKING = {"type": "enabled", "budget_tokens": 2048}


def converse(url):
    messages = [{"role": "user", "content": QUESTION}]
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=API_KEY) as client:
        while True:
            settings = {"model": MODEL, "max_tokens": 4096, "messages": messages, "tools": [TOOL], "thinking": THINKING}
            with client.messages.stream(**settings) as stream:
                message = stream.get_final_message()
            uses = [block for block in message.content if block.type == "tool_use"]
            if message.stop_reason != "tool_use":
                return "".join(block.text for block in message.content if block.type == "text")
            results = [{"type": "tool_result", "tool_use_id": one.id, "content": get_weather(**one.input)} for one in uses]
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


each(converse)
