"""Strands: an agent over Chat Completions, or by the argument over Messages, streamed."""

import sys

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel


def converse(url):
    if "anthropic" in sys.argv:
        arguments = {"api_key": API_KEY, "base_url": url.removesuffix("/v1")}
        model = AnthropicModel(client_args=arguments, model_id=MODEL, max_tokens=4096)
    else:
        model = OpenAIModel(client_args={"api_key": API_KEY, "base_url": url}, model_id=MODEL)
    result = Agent(model, tools=[tool(get_weather)], callback_handler=None)(QUESTION)
    return "".join(block.get("text", "") for block in result.message["content"])


each(converse)
