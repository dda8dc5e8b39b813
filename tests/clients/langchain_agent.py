"""LangChain: an agent over `ChatOpenAI` with the Responses API, streamed."""

from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def converse(url):
    model = ChatOpenAI(model=MODEL, base_url=url, api_key=API_KEY, use_responses_api=True, streaming=True)
    agent = create_agent(model, tools=[get_weather])
    *_, last = agent.stream({"messages": [{"role": "user", "content": QUESTION}]}, stream_mode="values")
    return last["messages"][-1].text


each(converse)
