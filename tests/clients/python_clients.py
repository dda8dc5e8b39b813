"""Python clients, each of which must call a tool and use its answer: `python python_clients.py NAME [API]`.

Each function converses with the server at a URL, and returns its answer: the last text. The first line of its docstring says
what it is.
"""

# ruff: noqa: PLC0415 - each client needs other packages

import asyncio
import json
import os
import sys
import traceback

MODEL = os.environ["MODEL"]
API_KEY = "none"
QUESTION = "Get the weather of: Berlin"
THINKING = {"type": "enabled", "budget_tokens": 2048}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}

calls = []


def weather_of(city):
    calls.append({"city": city})
    return "18 °C and sunny"


def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def results_of(tool_calls):
    """The messages with the results of calls in Chat Completions."""
    for call in tool_calls:
        content = get_weather(**json.loads(call.function.arguments))
        yield {"role": "tool", "tool_call_id": call.id, "content": content}


def google_adk(url, _):
    """Google's Agent Development Kit: an agent over Chat Completions by LiteLLM, streamed."""
    from google.adk.agents import Agent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    async def converse():
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

    return asyncio.run(converse())


def agents_sdk(url, _):
    """The Agents SDK: its own loop over turns and tools, streamed."""
    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    async def converse():
        sealed = ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
        settings = sealed if os.environ.get("STORE") == "no" else ModelSettings()
        async with AsyncOpenAI(base_url=url, api_key=API_KEY) as client:
            model = OpenAIResponsesModel(model=MODEL, openai_client=client)
            about = {"name": "Forecaster", "instructions": "Answer by the tools."}
            agent = Agent(**about, model=model, model_settings=settings, tools=[function_tool(get_weather)])
            result = Runner.run_streamed(agent, QUESTION)
            async for _ in result.stream_events():
                pass
            return result.final_output

    set_tracing_disabled(True)
    return asyncio.run(converse())


def anthropic_messages(url, _):
    """The `anthropic` package: its accumulator of streams, tools, and thinking that it sends back with its signature."""
    import anthropic

    tool = {"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}
    messages = [{"role": "user", "content": QUESTION}]
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=API_KEY) as client:
        while True:
            settings = {"model": MODEL, "max_tokens": 4096, "messages": messages, "tools": [tool], "thinking": THINKING}
            with client.messages.stream(**settings) as stream:
                message = stream.get_final_message()
            uses = [block for block in message.content if block.type == "tool_use"]
            if message.stop_reason != "tool_use":
                return "".join(block.text for block in message.content if block.type == "text")
            results = [{"type": "tool_result", "tool_use_id": one.id, "content": get_weather(**one.input)} for one in uses]
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


def anthropic_runner(url, _):
    """The tool runner of the `anthropic` package, which streams, and sends a thread until the server refuses it."""
    import anthropic

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


def crewai(url, _):
    """CrewAI: an agent over Chat Completions, streamed."""
    from crewai import LLM, Agent
    from crewai.events import crewai_event_bus
    from crewai.tools import tool

    model = LLM(f"hosted_vllm/{MODEL}", base_url=url, api_key=API_KEY, stream=True)
    agent = Agent(role="reporter", goal="Report the weather.", backstory="You report.", tools=[tool(get_weather)], llm=model)
    answer = agent.kickoff(QUESTION).raw
    crewai_event_bus.flush()  # which prints what happened
    return answer


def instructor_chat(url, _):
    """instructor: an object that the model fills in, streamed as partial objects of a forced call over Chat Completions."""
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class GetWeather(BaseModel):
        """The weather of a city."""

        city: str | None = None

    with OpenAI(base_url=url, api_key=API_KEY) as openai:
        client = instructor.from_openai(openai)
        messages = [{"role": "user", "content": QUESTION}]
        *_, whole = client.create_partial(model=MODEL, messages=messages, response_model=GetWeather)
        return f"get_weather says: {get_weather(whole.city)}"


def langchain_agent(url, api):
    """LangChain: an agent, streamed, over the Responses API or, by the argument, over Chat Completions or Messages."""
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    if api == "anthropic":
        settings = {"base_url": url.removesuffix("/v1"), "thinking": THINKING, "max_tokens": 4096}
        model = ChatAnthropic(model=MODEL, api_key=API_KEY, streaming=True, **settings)
    else:
        model = ChatOpenAI(model=MODEL, base_url=url, api_key=API_KEY, use_responses_api=api != "chat", streaming=True)
    agent = create_agent(model, tools=[get_weather])
    *_, last = agent.stream({"messages": [{"role": "user", "content": QUESTION}]}, stream_mode="values")
    return last["messages"][-1].text


def litellm_messages(url, _):
    """LiteLLM's reading of a stream of Messages, with the thinking that it sends back."""
    import litellm

    messages = [{"role": "user", "content": QUESTION}]
    where = {"model": f"anthropic/{MODEL}", "api_base": url.removesuffix("/v1"), "api_key": API_KEY}
    while True:
        tools = [{"type": "function", "function": FUNCTION}]
        chunks = litellm.completion(**where, messages=messages, tools=tools, stream=True, max_tokens=4096)
        (choice,) = litellm.stream_chunk_builder([*chunks], messages=messages).choices
        if choice.finish_reason != "tool_calls":
            return choice.message.content
        messages += [choice.message.model_dump(), *results_of(choice.message.tool_calls)]


def litellm_responses(url, _):
    """LiteLLM: its own reading of the stream, and the second turn by `previous_response_id`."""
    import litellm

    def turn(**settings):
        where = {"model": f"openai/{MODEL}", "api_base": url, "api_key": API_KEY}
        *_, last = litellm.responses(**where, stream=True, tools=[{"type": "function", **FUNCTION}], **settings)
        return last.response

    response = turn(input=QUESTION)
    (call,) = [item for item in response.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": get_weather(**json.loads(call.arguments))}
    answer = turn(input=[output], previous_response_id=response.id)
    return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)


def llama_index(url, _):
    """LlamaIndex: an agent of functions over Chat Completions, streamed."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    async def converse():
        model = OpenAILike(MODEL, api_base=url, api_key=API_KEY, is_chat_model=True, is_function_calling_model=True)
        return str(await FunctionAgent(tools=[get_weather], llm=model).run(QUESTION))

    return asyncio.run(converse())


def openhands(url, _):
    """OpenHands: an agent over Chat Completions by LiteLLM, with a tool that the client runs."""
    import tempfile

    from openhands.sdk import LLM, Agent, Conversation
    from openhands.sdk.event import MessageEvent
    from openhands.sdk.tool import Action, Observation, Tool, ToolDefinition, ToolExecutor, register_tool

    class WeatherAction(Action):
        city: str

    class WeatherObservation(Observation):
        pass

    class WeatherExecutor(ToolExecutor):
        def __call__(self, action, conversation=None):
            del conversation
            return WeatherObservation.from_text(get_weather(action.city))

    class GetWeather(ToolDefinition):
        @classmethod
        def create(cls, *_arguments, **_named):
            described = {
                "description": "The weather of a city.",
                "action_type": WeatherAction,
                "observation_type": WeatherObservation,
            }
            return [cls(**described, executor=WeatherExecutor())]

    register_tool("get_weather", GetWeather)
    agent = Agent(llm=LLM(model=f"openai/{MODEL}", base_url=url, api_key=API_KEY), tools=[Tool(name="get_weather")])
    with tempfile.TemporaryDirectory() as folder:
        conversation = Conversation(agent=agent, workspace=folder, visualizer=None)
        conversation.send_message(QUESTION)
        conversation.run()
        said = [each for each in conversation.state.events if isinstance(each, MessageEvent) and each.source == "agent"]
    return "".join(part.text for part in said[-1].llm_message.content)


def openai_chat(url, _):
    """The `openai` package's helper for streams of Chat Completions, and tools."""
    import openai

    function = {**FUNCTION, "parameters": {**SCHEMA, "additionalProperties": False}, "strict": True}
    messages = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=url, api_key=API_KEY) as client:
        while True:
            tools = [{"type": "function", "function": function}]
            with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools) as stream:
                (choice,) = stream.get_final_completion().choices
            if choice.finish_reason != "tool_calls":
                return choice.message.content
            messages += [choice.message, *results_of(choice.message.tool_calls)]


def pydantic_ai(url, _):
    """Pydantic AI: an agent over the Responses API, streamed."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def drain(_context, events):
        """Read the events, so that the run is streamed."""
        async for _ in events:
            pass

    async def converse():
        model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=url, api_key=API_KEY))
        return (await Agent(model, tools=[get_weather]).run(QUESTION, event_stream_handler=drain)).output

    return asyncio.run(converse())


def smolagents(url, _):
    """smolagents: an agent that calls tools over Chat Completions, streamed."""
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    @tool
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: The name of the city.
        """
        return weather_of(city)

    model = OpenAIModel(MODEL, api_base=url, api_key=API_KEY)
    agent = ToolCallingAgent([get_weather], model, stream_outputs=True, verbosity_level=0, max_steps=1)
    answer = str(agent.run(QUESTION))  # which quotes the prompt, because the model does not call the agent's `final_answer`
    return f"get_weather says: {answer.partition('Observation:')[2].split(chr(10))[1]}"


def strands(url, api):
    """Strands: an agent over Chat Completions, or by the argument over Messages, streamed."""
    from strands import Agent, tool
    from strands.models.anthropic import AnthropicModel
    from strands.models.openai import OpenAIModel

    if api == "anthropic":
        arguments = {"api_key": API_KEY, "base_url": url.removesuffix("/v1")}
        model = AnthropicModel(client_args=arguments, model_id=MODEL, max_tokens=4096)
    else:
        model = OpenAIModel(client_args={"api_key": API_KEY, "base_url": url}, model_id=MODEL)
    result = Agent(model, tools=[tool(get_weather)], callback_handler=None)(QUESTION)
    return "".join(block.get("text", "") for block in result.message["content"])


def whole_answers(url, _):
    """What the accumulators of `anthropic` and `openai` make of a stream, each with the same answer without streaming."""
    import anthropic
    import openai

    asked = {"model": MODEL, "max_tokens": 4096, "messages": [{"role": "user", "content": QUESTION}]}
    use = {**asked, "tools": [{"name": "get_weather", "description": "The weather of a city.", "input_schema": SCHEMA}]}
    call = {**asked, "tools": [{"type": "function", "function": FUNCTION}]}
    pairs = []
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key=API_KEY) as client:
        for settings in (asked, use):
            with client.messages.stream(**settings) as stream:
                pairs.append((stream.get_final_message(), client.messages.create(**settings)))
    with openai.OpenAI(base_url=url, api_key=API_KEY) as client:
        for settings in (asked, call):
            with client.chat.completions.stream(**settings, stream_options={"include_usage": True}) as stream:
                pairs.append((stream.get_final_completion(), client.chat.completions.create(**settings)))
    return [[one.model_dump(mode="json", warnings=False) for one in pair] for pair in pairs]


CLIENTS = {
    client.__name__: client
    for client in (
        *(
            agents_sdk,
            anthropic_messages,
            anthropic_runner,
            crewai,
            google_adk,
            instructor_chat,
            langchain_agent,
            litellm_messages,
        ),
        *(litellm_responses, llama_index, openai_chat, openhands, pydantic_ai, smolagents, strands, whole_answers),
    )
}


def main(name, api=""):
    """Converse with each server of `BASE_URL`; print the arguments of each call, and the answer."""
    ended = 0
    for url in os.environ["BASE_URL"].split():
        calls.clear()
        try:
            outcome = {"answer": CLIENTS[name](url, api), "calls": calls}
        except Exception as error:  # noqa: BLE001 - whatever the client makes of it
            traceback.print_exc()
            outcome, ended = {"error": repr(error)}, 1
        sys.stdout.write(json.dumps(outcome) + "\n")
    sys.exit(ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
