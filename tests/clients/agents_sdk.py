"""The Agents SDK: its own loop over turns and tools, streamed."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from conversation import API_KEY, BASE_URL, MODEL, QUESTION, get_weather, report
from openai import AsyncOpenAI


async def main():
    set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as client:
        model = OpenAIResponsesModel(model=MODEL, openai_client=client)
        agent = Agent(name="Forecaster", instructions="Answer by the tools.", model=model, tools=[function_tool(get_weather)])
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        report(result.final_output)


asyncio.run(main())
