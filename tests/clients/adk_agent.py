"""Google's Agent Development Kit: an agent over Chat Completions by LiteLLM, streamed."""

import asyncio
import json

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


async def converse(url):
    model = LiteLlm(f"openai/{MODEL}", api_base=url, api_key=API_KEY)
    runner = InMemoryRunner(Agent(name="agent", model=model, tools=[get_weather]), app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
    settings = RunConfig(streaming_mode=StreamingMode.SSE)
    answer = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message, run_config=settings):
        if event.is_final_response() and not event.partial:
            answer = "".join(part.text or "" for part in event.content.parts if not part.thought)
    said, _, result = answer.partition("says: ")  # an object, because the kit makes one of a text
    return f"{said}says: {json.loads(result)['result']}"


each(lambda url: asyncio.run(converse(url)))
