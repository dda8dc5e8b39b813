"""Pydantic AI: an agent over the Responses API, streamed."""

import asyncio

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


async def drain(_context, events):
    """Read the events, for whose sake the run is streamed."""
    async for _ in events:
        pass


async def converse(url):
    model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=url, api_key=API_KEY))
    agent = Agent(model, tools=[get_weather])
    return (await agent.run(QUESTION, event_stream_handler=drain)).output


each(lambda url: asyncio.run(converse(url)))
