"""instructor: an object that the model fills in, streamed as partial objects of a forced call over Chat Completions."""

import instructor
from conversation import API_KEY, MODEL, QUESTION, each, get_weather
from openai import OpenAI
from pydantic import BaseModel


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str | None = None


def converse(url):
    with OpenAI(base_url=url, api_key=API_KEY) as openai:
        client = instructor.from_openai(openai)
        messages = [{"role": "user", "content": QUESTION}]
        *_, whole = client.create_partial(model=MODEL, messages=messages, response_model=GetWeather)
        return f"get_weather says: {get_weather(whole.city)}"


each(converse)
