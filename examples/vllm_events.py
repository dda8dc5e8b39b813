"""vLLM's own server with Interlock's events: vLLM's Responses serving class with another streaming loop.

    python examples/vllm_events.py serve openai/gpt-oss-20b     # the flags are those of `vllm serve`

vLLM keeps its routes, prompts, store and tools. docs/library/engine.md explains this file, tested with vLLM 0.32 and 0.33.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from types import SimpleNamespace
from typing import Any, Final

from attrs import evolve
from openai.types.responses import ResponseReasoningItem
from vllm.entrypoints.cli.main import main
from vllm.entrypoints.openai.responses import serving
from vllm.entrypoints.openai.responses.context import ParsableContext
from vllm.entrypoints.openai.responses.protocol import ResponsesResponse
from vllm.sampling_params import RequestOutputKind

import interlock
from interlock.parsers.families import ParserSettings, family, has_family
from interlock.parsers.routing import Route

HOSTED: Final = {  # the items of the functions that vLLM runs itself, for models other than gpt-oss
    "code_interpreter": Route("code_interpreter_call", payload="input"),
    "web_search_preview": Route("web_search_call", payload="browser", function="search"),
}


HOSTED_CALLS: Final = ("code_interpreter_call", "web_search_call", "mcp_call")


def as_reasoning(item: Any) -> Any:
    """Return a hosted call of an input as reasoning: vLLM's prompts refuse the call. Its own events show code so."""
    fields = item if isinstance(item, dict) else item.model_dump(exclude_none=True)
    if fields.get("type") not in HOSTED_CALLS:
        return item
    values = [fields[name] for name in ("code", "arguments", "action", "outputs", "output") if fields.get(name)]
    text = "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    content = [{"type": "reasoning_text", "text": text}]
    return ResponseReasoningItem.model_validate({"id": "rs_0", "type": "reasoning", "summary": [], "content": content})


def as_event(frame: bytes) -> SimpleNamespace:
    """Return a frame as an event of vLLM's routes and store."""
    _, name, _, body = frame.decode().split(maxsplit=3)
    return SimpleNamespace(type=name, model_dump_json=lambda **_: body.rstrip())


class Answer(ResponsesResponse):
    """The response of a last event: vLLM's store has its fields, and vLLM's routes send its `body`."""

    body: dict[str, Any]

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the body, with the status that vLLM sets when a client cancels the response."""
        return {**self.body, "status": self.status}


def watch(context: Any) -> SimpleNamespace:
    """Record each output and tool result on its way into vLLM's context."""
    seen = SimpleNamespace(output=None, tokens=0, turn=None, result="", call=None, asks=context.need_builtin_tool_call)
    append, append_result = context.append_output, context.append_tool_output
    takes_turns = isinstance(context, ParsableContext)  # which takes each output for a whole turn

    def append_output(output: Any) -> None:
        seen.output = output
        seen.tokens += len(output.outputs[0].token_ids)
        if takes_turns:
            if seen.turn is not None:
                seen.turn.add(output, aggregate=True)
            seen.turn = seen.turn or output
            if not output.finished:
                return
            output, seen.turn = seen.turn, None
        append(output)

    def append_tool_output(messages: Any) -> None:
        seen.result = "".join(getattr(each, "output", None) or each.content[0].text for each in messages)
        append_result(messages)

    context.append_output, context.append_tool_output = append_output, append_tool_output
    context.need_builtin_tool_call = lambda: seen.call is not None
    return seen


class EventServing(serving.OpenAIServingResponses):
    """vLLM's serving class with Interlock's events."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = options["tool_parser"] if options["enable_auto_tools"] else None, options["reasoning_parser"]
        self.family = family(*names) if has_family(*names) else None
        serving.logger.info("Interlock makes the events of /v1/responses.")

    async def create_responses(self, request: Any, *args: Any) -> Any:
        """Answer a request whose input may have the hosted calls of an earlier response."""
        if not isinstance(request.input, str):
            request.input = [as_reasoning(item) for item in request.input]
        return await super().create_responses(request, *args)

    async def responses_full_generator(self, request: Any, sampling: Any, *args: Any) -> ResponsesResponse:
        """Return the response of the last event."""
        sampling.output_kind = RequestOutputKind.DELTA  # vLLM asks for whole turns, but one that is cancelled has no end
        events = [event async for event in self.responses_stream_generator(request, sampling, *args)]
        body = json.loads(events[-1].model_dump_json())["response"]
        return Answer(**body, body=body)

    async def responses_stream_generator(
        self, request: Any, sampling: Any, steps: Any, context: Any, model: str, tokenizer: Any, *_: Any
    ) -> AsyncGenerator[SimpleNamespace]:
        """Yield the events of a response, and store it before the last one."""
        echo = ResponsesResponse.from_request(request, sampling, model, interlock.now(), [], "in_progress")
        body = echo.model_dump(mode="json", by_alias=True)
        driver = interlock.driver_for(body, response_id=request.request_id)
        settings = ParserSettings.from_request({**body, "include_reasoning": request.include_reasoning})
        settings.routing = evolve(settings.routing, declared={**HOSTED, **settings.routing.declared})
        settings.count = getattr(context.response_parser, "count_reasoning_tokens", None)
        text: interlock.Parser = interlock.ChatParser(settings.routing, settings.include_reasoning, settings.count)
        if self.family is not None and request.tool_choice in ("auto", "none"):  # vLLM has required calls written as JSON
            text = interlock.FamilyParser(self.family, settings)
        parser = interlock.parser_for("harmony", body) if self.use_harmony else text
        try:
            async with aclosing(self._deltas(request, steps, context, tokenizer, parser, driver)) as changes:
                async for deltas in changes:
                    for frame in await self._feed(request, driver, deltas):
                        yield as_event(frame)
        finally:  # the client may leave while an event is being sent
            await self._feed(request, driver, [interlock.Cancel(None)])

    async def responses_background_stream_generator(self, *args: Any) -> AsyncGenerator[SimpleNamespace]:
        """Yield the events of a response in the background; vLLM 0.32 ends its stream only after `response.completed`."""
        async with aclosing(super().responses_background_stream_generator(*args)) as events:
            async for event in events:
                yield event
                if event.type in ("response.incomplete", "response.failed"):
                    return

    async def _feed(self, request: Any, driver: Any, deltas: list[interlock.Delta]) -> list[bytes]:
        """Return the frames of deltas, and store the response if it ends with them."""
        frames: list[bytes] = driver.feed(deltas)
        if frames and driver.ended and request.store:
            async with self.response_store_lock:
                self.response_store[driver.id] = Answer(**driver.response, body=driver.response)
        return frames

    async def _deltas(
        self, request: Any, steps: Any, context: Any, tokenizer: Any, parser: interlock.Parser, driver: Any
    ) -> AsyncGenerator[list[interlock.Delta]]:
        """Yield the deltas of all turns and tools; an exception becomes the last one."""
        seen, reader, begins = watch(context), None, True
        yield [interlock.Start()]
        try:
            async with AsyncExitStack() as stack, aclosing(steps):
                await self._initialize_tool_sessions(request, context, stack)
                async for _ in steps:
                    if (call := seen.call) is not None:  # vLLM's loop has run the tool
                        yield [interlock.Succeed(call.id, interlock.result_fields(call.kind, seen.result))]
                        seen.call = None
                    output, new, prompt = seen.output, seen.output.outputs[0], seen.output.prompt_token_ids or []
                    if begins and not self.use_harmony:
                        reader = self._make_response_parser(request, tokenizer, self._effective_chat_template_kwargs(request))
                        if isinstance(parser, interlock.FamilyParser) and reader.is_reasoning_end(prompt):
                            parser.begin("between")
                    begins = output.finished
                    chunk = interlock.Chunk(new.token_ids, new.text)  # the step's output, for any of the parsers
                    if isinstance(parser, interlock.ChatParser):
                        arguments, finished = (new.text, [*new.token_ids], request, prompt), output.finished
                        chunk.delta = reader.parse_delta(*arguments, finished=finished) if reader else {"content": new.text}
                    if new.logprobs and request.is_include_output_logprobs():
                        entries = self._create_response_logprobs(new.token_ids, new.logprobs, tokenizer, request.top_logprobs)
                        chunk.logprobs = [entry.model_dump() for entry in entries]
                    yield parser.feed(chunk)
                    self._raise_if_error(new.finish_reason, request.request_id)
                    if output.finished:  # the turn ends
                        cached, tokens, seen.tokens = output.num_cached_tokens or 0, seen.tokens, 0
                        usage = interlock.Usage(input_tokens=len(prompt), cached_tokens=cached, output_tokens=tokens)
                        yield parser.end("content_filter" if new.finish_reason == "repetition" else new.finish_reason, usage)
                        if driver.ready and seen.asks():  # vLLM's loop runs the last call next
                            seen.call = driver.ready[-1]
                            yield [interlock.Run(seen.call.id)]
                yield [interlock.Finish()]
        except asyncio.CancelledError:  # the client has left, or has cancelled a response in the background
            yield [*parser.end("abort", interlock.Usage())[:-1], interlock.Cancel(None)]
            raise
        except Exception as error:
            is_refusal = isinstance(error, serving.VLLMValidationError)
            if is_refusal and seen.output is None and not (request.stream or request.background):
                raise  # vLLM answers with the status of the engine's refusal
            serving.logger.exception("%s failed", driver.id)
            message = str(error) if is_refusal or isinstance(error, serving.GenerationError) else "The server had an error."
            fault = interlock.Fault("invalid_prompt" if is_refusal else "server_error", message)
            yield [*parser.end("error", interlock.Usage())[:-1], fault]


if __name__ in ("__main__", "__mp_main__"):  # the latter in the further API processes, which vLLM spawns
    serving.OpenAIServingResponses = EventServing  # vLLM's server takes the class from here

if __name__ == "__main__":
    main()
