"""smolagents: an agent that calls tools over Chat Completions, streamed."""

from conversation import API_KEY, MODEL, QUESTION, each
from conversation import get_weather as weather
from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The name of the city.
    """
    return weather(city)


def converse(url):
    model = OpenAIModel(MODEL, api_base=url, api_key=API_KEY)
    agent = ToolCallingAgent([get_weather], model, stream_outputs=True, verbosity_level=0, max_steps=1)
    answer = str(agent.run(QUESTION))  # which quotes what the model was told, because it does not call the agent's `final_answer`
    return f"get_weather says: {answer.partition('Observation:')[2].split(chr(10))[1]}"


each(converse)
