"""LlamaIndex: an agent of functions over Chat Completions, streamed."""

import asyncio

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


async def converse(url):
    model = OpenAILike(MODEL, api_base=url, api_key=API_KEY, is_chat_model=True, is_function_calling_model=True)
    return str(await FunctionAgent(tools=[get_weather], llm=model).run(QUESTION))


each(lambda url: asyncio.run(converse(url)))
