"""The Agents SDK: its own loop over turns and tools, streamed."""

import asyncio
import os

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from conversation import API_KEY, BASE_URL, MODEL, QUESTION, get_weather, report
from openai import AsyncOpenAI

SEALED = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
SETTINGS = SEALED if os.environ.get("STORE") == "no" else ModelSettings()


async def main():
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as client:
        model = OpenAIResponsesModel(model=MODEL, openai_client=client)
        tools = [function_tool(get_weather)]
        agent = Agent(name="Forecaster", instructions="Answer by the tools.", model=model, model_settings=SETTINGS, tools=tools)
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        report(result.final_output)


asyncio.run(main())
