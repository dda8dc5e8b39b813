"""LangChain: an agent over `ChatOpenAI` with the Responses API, streamed."""

from conversation import API_KEY, BASE_URL, MODEL, QUESTION, get_weather, report
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=API_KEY, use_responses_api=True, streaming=True)
agent = create_agent(model, tools=[get_weather])
*_, last = agent.stream({"messages": [{"role": "user", "content": QUESTION}]}, stream_mode="values")
report(last["messages"][-1].text)
