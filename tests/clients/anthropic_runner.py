"""The tool runner of the `anthropic` package, which streams, and sends a thread until the server refuses it."""

import anthropic
from conversation import API_KEY, MODEL, QUESTION, each, get_weather


def converse(url):
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=API_KEY) as client:
        runner = client.beta.messages.tool_runner(
            model=MODEL,
            max_tokens=4096,
            tools=[anthropic.beta_tool(get_weather)],
            messages=[{"role": "user", "content": QUESTION}],
            stream=True,
        )
        for stream in runner:
            message = stream.get_final_message()
        return "".join(block.text for block in message.content if block.type == "text")


each(converse)
