"""LiteLLM: its own reading of the stream, and the second turn by `previous_response_id`."""

import json

import litellm
from conversation import API_KEY, MODEL, QUESTION, each, get_weather

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": parameters}]


def turn(url, **settings):
    stream = litellm.responses(model=f"openai/{MODEL}", api_base=url, api_key=API_KEY, stream=True, tools=tools, **settings)
    *_, last = stream
    return last.response


def converse(url):
    response = turn(url, input=QUESTION)
    (call,) = [item for item in response.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(**json.loads(call.arguments))}
    answer = turn(url, input=[output], previous_response_id=response.id)
    return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)


each(converse)
