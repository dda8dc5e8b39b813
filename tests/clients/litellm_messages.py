"""LiteLLM's reading of a stream of Messages, with the thinking that it sends back."""

import json

import litellm
from conversation import API_KEY, MODEL, QUESTION, each, get_weather

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
function = {"name": "get_weather", "description": "The weather of a city.", "parameters": parameters}


def converse(url):
    messages = [{"role": "user", "content": QUESTION}]
    where = {"model": f"anthropic/{MODEL}", "api_base": url.removesuffix("/v1"), "api_key": API_KEY}
    while True:
        tools = [{"type": "function", "function": function}]
        chunks = litellm.completion(**where, messages=messages, tools=tools, stream=True, max_tokens=4096)
        (choice,) = litellm.stream_chunk_builder([*chunks], messages=messages).choices
        if choice.finish_reason != "tool_calls":
            return choice.message.content
        messages.append(choice.message.model_dump())
        for call in choice.message.tool_calls:
            content = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


each(converse)
