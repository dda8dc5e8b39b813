"""The `openai` package's helper for streams of Chat Completions, and tools."""

import json

import openai
from conversation import API_KEY, MODEL, QUESTION, each, get_weather

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS, "strict": True}


def converse(url):
    messages = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=url, api_key=API_KEY) as client:
        while True:
            tools = [{"type": "function", "function": FUNCTION}]
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools) as stream:
                (choice,) = stream.get_final_completion().choices
            if choice.finish_reason != "tool_calls":
                return choice.message.content
            messages.append(choice.message)
            for call in choice.message.tool_calls:
                content = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


each(converse)
