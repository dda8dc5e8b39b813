"""A request and the conversation that it continues: what is known before an engine begins the response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from attrs import Factory, field, frozen
from msgspec import to_builtins

from interlock.embedding import now, random_id
from interlock.events.response_object import InputTransformation
from interlock.events.sse import Writer
from interlock.fsm.driver import Clock, Ids, ResponseDriver
from interlock.fsm.lifecycle import FinalFields
from interlock.serving.engines.engine import Generation
from interlock.serving.requests.create import ResponseRequest
from interlock.serving.requests.input_items import JsonItem, add_ids
from interlock.serving.responses.conversation_lease import ConversationLease
from interlock.serving.responses.sealing import Seals
from interlock.serving.store import SHARED

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

T = TypeVar("T")


@frozen
class RequestContext:
    """A request, and the conversation that it continues, with references replaced by items."""

    request: ResponseRequest
    items: Sequence[JsonItem]
    """The conversation with the request's input, as clients and stores see it."""
    tenant: str = SHARED
    model_items: Sequence[JsonItem] = field(default=Factory(lambda self: self.items, takes_self=True))
    """The same conversation as the model reads it; see `Seals.unseal`."""
    removed: Sequence[InputTransformation] = ()
    """The reasoning of other models that is not among `model_items`."""
    lease: ConversationLease | None = None
    """The lease on the conversation that the response is added to."""
    seals: Seals | None = None
    """The seals for reasoning and summaries. If None, nothing is sealed or compacted."""
    connection: HTTPConnection | None = field(default=None, repr=False)
    """The client's connection, for a host engine."""
    summarizes: bool = False
    """Whether the text of the reasoning is sent as its summary."""

    @cached_property
    def stored_items(self) -> tuple[JsonItem, ...]:
        """The conversation as a store needs it: each item has an id."""
        return add_ids(self.items)


def new_driver(
    context: RequestContext,
    generation: Generation,
    settings: Mapping[str, object],
    writer: Writer[T],
    *,
    ids: Ids = random_id,
    clock: Clock = now,
) -> ResponseDriver[T]:
    """Return the driver of a response, which echoes the request and the `settings` that its engine has resolved."""
    request, seals = context.request, context.seals
    transformations = {"input_transformations": to_builtins(context.removed)} if context.removed else {}
    return ResponseDriver(
        {**request.settings, **settings, **transformations},
        writer=writer,
        ids=ids,
        clock=clock,
        response_id=generation.response_id or (None if context.lease is None else context.lease.response_id),
        final_fields=None if seals is None else _final_fields(seals, request, generation),
        additions=generation.additions,
        summarizes=context.summarizes,
    )


def _final_fields(seals: Seals, request: ResponseRequest, generation: Generation) -> FinalFields | None:
    """Return what seals reasoning: all of it on request, and always what its engine wants back."""
    if request.wants_encrypted_reasoning:
        return seals.late_fields
    return seals.kept_fields if generation.encrypts else None
