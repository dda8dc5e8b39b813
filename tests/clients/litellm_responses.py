"""LiteLLM: its own reading of the stream, and the second turn by `previous_response_id`."""

import json

import litellm
from conversation import API_KEY, BASE_URL, MODEL, QUESTION, get_weather, report

parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": parameters}]


def turn(**asked):
    stream = litellm.responses(model=f"openai/{MODEL}", api_base=BASE_URL, api_key=API_KEY, stream=True, tools=tools, **asked)
    *_, last = stream
    return last.response


response = turn(input=QUESTION)
(call,) = [item for item in response.output if item.type == "function_call"]
output = get_weather(**json.loads(call.arguments))
answer = turn(
    input=[{"type": "function_call_output", "call_id": call.call_id, "output": output}], previous_response_id=response.id
)
report("".join(part.text for item in answer.output if item.type == "message" for part in item.content))
