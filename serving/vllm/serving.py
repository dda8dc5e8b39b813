"""The hooks on the instance of vLLM's that serves responses: what it makes of a request becomes a run of ours.

vLLM validates a request, renders its prompt and begins its loop; then it calls one of the functions that are replaced here on
the instance. A request that did not come through our routes finds vLLM's own functions, as if nothing had been replaced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from typing import Any, cast

from attrs import evolve, field, frozen
from starlette.requests import HTTPConnection
from starlette.requests import Request as HttpRequest

from interlock.events.dialects import OPEN_RESPONSES, OPENAI, Dialect
from interlock.events.json import dumps
from interlock.fsm.deltas import Delta, Enqueue, Start
from interlock.fsm.driver import ResponseDriver
from interlock.parsers.families import Family, Settings
from interlock.serving.keys import Keys
from interlock.serving.requests.conversation import Item, identified, read_input
from interlock.serving.requests.conversations import named_conversation
from interlock.serving.requests.truncation import wants_truncation
from interlock.serving.requests.values import elements, members
from interlock.serving.runs.archive import Archive
from interlock.serving.runs.background import Backgrounds, Owner
from interlock.serving.runs.membership import Membership, commit_end, no_such_conversation
from interlock.serving.runs.open_runs import OpenRuns
from interlock.serving.sealing import Envelope, SealingKeys, Seals
from interlock.serving.sockets.memory import Memory
from interlock.serving.store import StoredResponse
from interlock.serving.vllm import seams
from interlock.serving.vllm.additions import Additions
from interlock.serving.vllm.admission import Admission
from interlock.serving.vllm.asking import ASKED, Asked, Before, CacheSalt, rendered, salted
from interlock.serving.vllm.begun import Begun, driver_of, leave_text_out, pairing, stops
from interlock.serving.vllm.compacting import compaction_of
from interlock.serving.vllm.dialogues import HarmonyDialogue, ParsedDialogue, Recovering, SilentDialogue
from interlock.serving.vllm.families import Source, family_reader, with_written_ids
from interlock.serving.vllm.fitting import fitted
from interlock.serving.vllm.reading import Logprobs, Reader, delta_reader, harmony_reader, hosted_functions
from interlock.serving.vllm.rendered import RenderedRun
from interlock.serving.vllm.rounds import Dialogue, Rounds
from interlock.serving.vllm.run import VllmRun
from interlock.serving.vllm.sessions import ToolSessions
from interlock.serving.vllm.shapes import DeltaParser, Dumpable, Output, Request, Serving

__all__ = ["Hooks"]


@frozen(eq=False)
class Hooks:
    """The hooks on one instance.

    Args:
        serving: vLLM's instance.
        archive: The stored responses.
        tool_timeout: Seconds that a tool may take.
        hide_end: Whether vLLM's parsers must not see the token that ends a round.
        family: The family whose models are read with parsers of our own; None where vLLM's are used.
        keys: The server's API keys, which say whose a response is.
        envelope: Seals what clients are to carry.
        dialect: The dialect of requests that ask for none.
        origins: The origins whose pages may open WebSockets; `*` for all.
        cache_salt: Which requests share vLLM's prefix cache.
    """

    serving: Serving
    archive: Archive
    tool_timeout: float
    hide_end: bool = False
    family: Family | None = None
    keys: Keys = field(factory=Keys)
    envelope: Envelope = field(factory=lambda: Envelope(SealingKeys.random()))
    dialect: Dialect = OPENAI
    origins: frozenset[str] = frozenset()
    cache_salt: CacheSalt = "tenant"
    open_runs: OpenRuns = field(factory=OpenRuns, init=False)
    open_sockets: OpenRuns = field(factory=OpenRuns, init=False)
    socket_memory: Memory = field(factory=Memory, init=False)
    _owners: dict[str, Owner[VllmRun[bytes]]] = field(factory=dict[str, Owner[VllmRun[bytes]]], init=False)
    """Those of responses that vLLM has just begun in the background, by their ids, until vLLM returns them."""

    @cached_property
    def backgrounds(self) -> Backgrounds[VllmRun[bytes]]:
        """The responses in the background."""
        return Backgrounds(self.archive, self.open_runs)

    def install(self) -> None:
        """Replace vLLM's functions, on this instance alone."""
        replaced: Mapping[str, Callable[..., object]] = {
            seams.GENERATE: partial(self._generating, getattr(self.serving, seams.GENERATE)),
            seams.STREAM: self._begin_stream,
            seams.BACKGROUND: self._begin_in_background,
            seams.BACKGROUND_READER: self._read_background,
        }
        for name, ours in replaced.items():
            setattr(self.serving, name, _if_asked(ours, getattr(self.serving, name)))

    def tenant(self, authorization: str) -> str:
        """Return whose a request is that vLLM has let in.

        Args:
            authorization: Its header `Authorization`.
        """
        return self.keys.tenant(authorization) or ""

    def spoken(self, connection: HTTPConnection) -> Dialect:
        """Return the dialect that a client speaks.

        Args:
            connection: What it asks.
        """
        return OPEN_RESPONSES if "openresponses-version" in connection.headers else self.dialect

    async def models(self) -> Sequence[str]:
        """Return the names by which requests may ask for a model; it may be left out."""
        return ["", *(card.id for card in (await self.serving.models.show_available_models()).data)]

    async def membership(self, body: Mapping[str, object], tenant: str, until_begun: AsyncExitStack) -> Membership | None:
        """Return the part of a response in the conversation that its request names, and hold the conversation.

        Args:
            body: Of the request.
            tenant: Whose it is.
            until_begun: Releases the conversation when it is closed.

        Raises:
            ApiError: 400 if the parameter is wrong, 404 if there is no such conversation, 409 if somebody holds it.
            StoreDown: The store cannot be used now.
        """
        name = named_conversation(body)
        if name is None:
            return None
        membership = await Membership.begin(self.archive.store, tenant, name)
        until_begun.push_async_callback(membership.release)
        return membership

    async def read(
        self,
        body: Mapping[str, object],
        dialect: Dialect,
        tenant: str = "",
        previous: StoredResponse | None = None,
        membership: Membership | None = None,
    ) -> tuple[dict[str, object], Asked]:
        """Read the body of a request, before vLLM does.

        Args:
            body: Of `POST /v1/responses`.
            dialect: What its client speaks.
            tenant: Whose request it is.
            previous: The response that it goes on from, if it is at hand although it may not be stored.
            membership: Its part in the conversation that it names, if a response is to be added to that.

        Returns:
            The body that vLLM is to validate, and what was asked; the latter is for `ASKED`, while vLLM begins the response.

        Raises:
            ApiError: 400 or 404; an item of its input cannot be read or opened, or what it goes on from is not there.
            StoreDown: The store cannot be used now, and something that is stored is asked for.
        """
        seals = Seals(self.envelope, str(body.get("model") or ""), tenant)
        said, given = read_input(body.get("input")), [*map(members, elements(body.get("input")))]
        before = await self._before(body, tenant, previous, membership)
        open_sealed = await seals.opener([*before.items, *before.stored.values(), *said], given)
        theirs, read_by = rendered(
            {**body, **salted(body, tenant, self.cache_salt), "conversation": None},
            before,
            open_sealed,
            harmony=self.serving.use_harmony,
        )
        if self.family is not None and isinstance(theirs.get("input"), list):
            theirs["input"] = with_written_ids(cast("list[Mapping[str, object]]", theirs["input"]), self.family)
        return theirs, Asked(body, dialect, read_by, seals, identified((*before.items, *before.said(said))), membership)

    async def _before(
        self, body: Mapping[str, object], tenant: str, previous: StoredResponse | None, membership: Membership | None
    ) -> Before:
        """Return what was said before a request."""
        name, items = body.get("previous_response_id"), map(members, elements(body.get("input")))
        if previous is None and isinstance(name, str):
            previous = await self.archive.previous(tenant, name)
        said = await self._conversation(body, tenant) if membership is None else membership.items
        referred = [str(item.get("id")) for item in items if item.get("type") == "item_reference"]
        stored: Mapping[str, Item] = await self.archive.store.find(tenant, referred) if referred else {}
        return Before(stored, said if previous is None else previous.conversation)

    async def _conversation(self, body: Mapping[str, object], tenant: str) -> Sequence[Item]:
        """Return the items of the conversation that a body names."""
        name = named_conversation({**body, "store": None})  # nothing is added to it
        items = () if name is None else await self.archive.store.conversation_items(tenant, name)
        if items is None:
            raise no_such_conversation(str(name))
        return items

    async def begin(self, asked: Asked, request: Request, raw_request: HttpRequest | None) -> object:
        """Have vLLM validate and render a request, and return what comes of it: a run of ours, or vLLM's refusal.

        Args:
            asked: The request, as it was sent.
            request: The same in vLLM's form.
            raw_request: What it came in; None for what the server asks by itself.
        """
        if request.store and self.serving.enable_store:
            self.archive.require_store()
        if wants_truncation(asked.body):
            probe = evolve(asked, generate=False)
            request = await fitted(request, lambda shorter: self._begin(probe, shorter, raw_request))
        return await self._begin(asked, request, raw_request)

    async def _begin(self, asked: Asked, request: Request, raw_request: HttpRequest | None) -> object:
        token = ASKED.set(asked)
        try:
            return await self.serving.create_responses(request, raw_request)
        finally:
            ASKED.reset(token)
            self.serving.msg_store.pop(request.request_id, None)  # nobody reads it again, and vLLM would keep it for ever
            self.serving.response_store.pop(request.request_id, None)

    def end(self) -> None:
        """End all responses and connections, and those that are still to come: the server shuts down."""
        self.open_runs.end()
        self.open_sockets.end()

    def _generating(self, theirs: Callable[..., object], asked: Asked, *arguments: Any, **others: Any) -> object:  # noqa: ANN401 - vLLM's own call
        """Note how long a prompt is, and return vLLM's loop, which begins when somebody iterates it."""
        asked.prompts.append(getattr(self.serving, seams.PROMPT_LENGTH)(others["engine_input"]))
        return theirs(*arguments, **others)

    def _begin_stream(self, asked: Asked, *arguments: Any, **others: Any) -> VllmRun[bytes] | RenderedRun[bytes]:  # noqa: ANN401 - likewise
        """Return the run of a request, which begins when somebody iterates it."""
        begun = Begun(*arguments, **others)
        return self._run(asked, begun, [Start()]) if asked.generate else self._rendered(asked, begun)

    def _begin_in_background(self, asked: Asked, *arguments: Any, **others: Any) -> Awaitable[None]:  # noqa: ANN401 - likewise
        """Return what makes a response in the background, in a task of vLLM's."""
        begun = Begun(*arguments, **others)
        run = self._run(asked, begun, [Enqueue()])
        owner = self.backgrounds.owner(asked.seals.tenant, run, lambda: asked.stored(run.driver.response), asked.membership)
        self._owners[begun.request.request_id] = owner
        return owner.make()

    def _read_background(self, _: Asked, response_id: str) -> Owner[VllmRun[bytes]]:
        """Return the owner of a response that has just begun."""
        return self._owners.pop(response_id)

    def _run(self, asked: Asked, begun: Begun, opening: Sequence[Delta]) -> VllmRun[bytes]:
        request, context = begun.request, begun.context
        reader, dialogue = self._harmony(asked, begun) if self.serving.use_harmony else self._parsed(asked, begun)
        rounds = Rounds(context, request, dialogue, lambda: run.driver.ready, self.tool_timeout)

        def added() -> Mapping[str, object]:
            return run.additions()

        async def enter(stack: AsyncExitStack) -> None:
            await getattr(self.serving, seams.TOOL_SESSIONS)(request, context, stack)
            rounds.watch(getattr(context, "_tool_sessions", {}))

        def check() -> None:
            first = None if rounds.output is None else rounds.output.outputs[0]
            if first is not None and not first.token_ids:
                getattr(self.serving, seams.RAISE_IF_ERROR)(first.finish_reason, request.request_id)

        admission = Admission(begun.steps, check, announced=begun.sampling.structured_outputs is None)
        settle, sessions = self._settling(asked, request), ToolSessions(enter, self.tool_timeout)
        additions = Additions(self.serving, request, context, rounds)
        driver = asked.driver or driver_of(asked, begun, additions=added)
        run: VllmRun[bytes] = VllmRun(driver, begun.steps, admission, rounds, reader, sessions, additions, settle, opening)
        run.membership = None if request.background else asked.membership  # of which else its owner takes care
        if asked.driver is None:
            run.compaction = compaction_of(self, asked, run, request.request_id)
        return run

    def _rendered(self, asked: Asked, begun: Begun) -> RenderedRun[bytes]:
        """Return the run of a request that wants no output."""
        return RenderedRun(driver_of(asked, begun), begun.steps, asked.prompts[-1], self._settling(asked, begun.request))

    def _settling(self, asked: Asked, request: Request) -> Callable[[ResponseDriver[bytes]], Awaitable[None]]:
        """Return what stores a response that has ended, unless its owner does, and logs it."""

        async def settle(ended: ResponseDriver[bytes]) -> None:
            if request.store and not request.background and ended.status != "cancelled":
                stored = asked.stored(ended.response)
                await commit_end(asked.membership, stored, partial(self.archive.put, asked.seals.tenant, stored))
            self._log(ended.response, streamed=asked.streamed)

        return settle

    def _log(self, response: Mapping[str, object], *, streamed: bool) -> None:
        """Log what was generated, if vLLM was started with `--enable-log-outputs`."""
        log = self.serving.request_logger
        if log is not None and self.serving.enable_log_outputs:
            items = dumps(response["output"]).decode()
            log.log_outputs(str(response["id"]), items, None, finish_reason=str(response["status"]), is_streaming=streamed)

    def _harmony(self, asked: Asked, begun: Begun) -> tuple[Reader, Dialogue]:
        leave_text_out(begun.sampling)
        context = begun.context
        if getattr(context, "available_tools", None) == [] and not begun.request.enable_response_messages:
            # One round, whose messages nobody reads: to parse 20,000 tokens at its end would hold the event loop for 20 ms.
            return harmony_reader(asked.read_by), SilentDialogue()
        dialogue = HarmonyDialogue(getattr(context, "_messages", []), cast("Recovering", context.response_parser))
        return harmony_reader(asked.read_by), dialogue

    def _parsed(self, asked: Asked, begun: Begun) -> tuple[Reader, Dialogue]:
        """Return the reader of a model that writes no harmony, and the dialogue of the context that vLLM has for it."""
        context, request = begun.context, begun.request
        items: list[object] | None = getattr(context, "response_messages", None)
        if items is None:
            silent = SilentDialogue(context.append_output if request.enable_response_messages else None)
            return self._reader(asked, begun, context.response_parser, _no_parser), silent

        def make_parser() -> DeltaParser | None:
            values = getattr(self.serving, seams.TEMPLATE_VALUES)(request)
            made: DeltaParser | None = getattr(self.serving, seams.MAKE_PARSER)(request, begun.tokenizer, values)
            return made

        return self._reader(asked, begun, make_parser(), make_parser), ParsedDialogue(items, context.append_output)

    def _reader(
        self, asked: Asked, begun: Begun, theirs: DeltaParser | None, following: Callable[[], DeltaParser | None]
    ) -> Reader:
        """Return the reader of a known family, else one with vLLM's parsers."""
        request = begun.request
        available: Sequence[str] = getattr(begun.context, "available_tools", ())
        logprobs = self._logprobs(begun) if request.is_include_output_logprobs() else None
        settings = Settings.from_request(asked.read_by)
        settings.routing = hosted_functions(settings.routing, available)
        forced = asked.read_by.get("tool_choice") not in (None, "auto", "none")
        pairs = partial(pairing, begun)
        lags = bool(begun.sampling.stop) and not begun.sampling.include_stop_str_in_output
        source = Source(pairs, partial(stops, begun), lags)
        ours = family_reader(self.family, settings, begun.tokenizer, theirs, source, logprobs, forced=forced)
        if ours is not None:
            return ours
        more: dict[str, Any] = {"available": available, "logprobs": logprobs, "hide_end": self.hide_end}
        return delta_reader(asked.read_by, request, theirs, following, pairs, **more)

    def _logprobs(self, begun: Begun) -> Logprobs:
        make: Callable[..., Sequence[Dumpable]] = getattr(self.serving, seams.LOGPROBS)

        def logprobs(output: Output) -> Sequence[Mapping[str, object]]:
            new = output.outputs[0]
            if new.logprobs is None:
                return ()
            made = make(
                token_ids=new.token_ids,
                logprobs=new.logprobs,
                tokenizer=begun.tokenizer,
                top_logprobs=begun.request.top_logprobs,
            )
            return [entry.model_dump() for entry in made]

        return logprobs


def _if_asked(ours: Callable[..., object], theirs: Callable[..., object]) -> Callable[..., object]:
    """Call ours for requests that came through our routes, and theirs for all others."""

    def either(*arguments: object, **others: object) -> object:
        asked = ASKED.get()
        return theirs(*arguments, **others) if asked is None else ours(asked, *arguments, **others)

    return either


def _no_parser() -> None:
    """Return no parser, because no further round follows."""
