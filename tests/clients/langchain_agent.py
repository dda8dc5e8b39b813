"""LangChain: an agent, streamed, over the Responses API or, by the argument, over Chat Completions or Messages."""

import sys

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI


def model(url):
    match sys.argv[1:]:
        case ["anthropic"]:
            thinking = {"type": "enabled", "budget_tokens": 2048}
            base = url.removesuffix("/v1")
            return ChatAnthropic(model=MODEL, base_url=base, api_key=API_KEY, streaming=True, thinking=thinking, max_tokens=4096)
        case api:
            return ChatOpenAI(model=MODEL, base_url=url, api_key=API_KEY, use_responses_api=api != ["chat"], streaming=True)


def converse(url):
    agent = create_agent(model(url), tools=[get_weather])
    *_, last = agent.stream({"messages": [{"role": "user", "content": QUESTION}]}, stream_mode="values")
    return last["messages"][-1].text


each(converse)
