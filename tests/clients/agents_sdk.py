"""The Agents SDK: its own loop over turns and tools, streamed."""

import asyncio
import os

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from openai import AsyncOpenAI

SEALED = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
SETTINGS = SEALED if os.environ.get("STORE") == "no" else ModelSettings()


async def converse(url):
    async with AsyncOpenAI(base_url=url, api_key=API_KEY) as client:
        model = OpenAIResponsesModel(model=MODEL, openai_client=client)
        tools = [function_tool(get_weather)]
        agent = Agent(name="Forecaster", instructions="Answer by the tools.", model=model, model_settings=SETTINGS, tools=tools)
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        return result.final_output


set_tracing_disabled(True)
each(lambda url: asyncio.run(converse(url)))
