"""Prints streams as the accumulators of `anthropic` and `openai` read them, and the same answers without streaming."""

import json
import os
import sys

import anthropic
import openai
from python_clients import API_KEY, FUNCTION, MODEL, QUESTION, SCHEMA

URL = os.environ["BASE_URL"]
ASKED = {"model": MODEL, "max_tokens": 4096, "messages": [{"role": "user", "content": QUESTION}]}
USE = {**ASKED, "tools": [{"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}]}
CALL = {**ASKED, "tools": [{"type": "function", "function": FUNCTION}]}


def messages():
    with anthropic.Anthropic(base_url=URL.removesuffix("/v1"), api_key=API_KEY) as client:
        for settings in (ASKED, USE):
            with client.messages.stream(**settings) as stream:
                yield stream.get_final_message(), client.messages.create(**settings)


def completions():
    with openai.OpenAI(base_url=URL, api_key=API_KEY) as client:
        for settings in (ASKED, CALL):
            with client.chat.completions.stream(**settings, stream_options={"include_usage": True}) as stream:
                yield stream.get_final_completion(), client.chat.completions.create(**settings)


pairs = [*messages(), *completions()]
sys.stdout.write(json.dumps([[one.model_dump(mode="json", warnings=False) for one in pair] for pair in pairs]) + "\n")
