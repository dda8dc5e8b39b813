"""From a request as a client sent it to one that every release of vLLM can render, on the path of harmony and on that of parsers.

What vLLM would refuse or lose is put into what it knows: functions, and messages, reasoning, function calls and their outputs.
The client sees nothing of that: the response echoes what was asked, and calls are read by the tools as they were declared.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from interlock.events.dialects import Dialect
from interlock.fsm.driver import ResponseDriver
from interlock.serving.requests.compaction import threshold_of, window
from interlock.serving.requests.conversation import Item, require_input, resolved
from interlock.serving.requests.create import read_hosted
from interlock.serving.requests.offer import Hosted, Offer, offer
from interlock.serving.requests.plain import OpenSealed, plain, unopened
from interlock.serving.requests.values import elements, members
from interlock.serving.runs.membership import Membership
from interlock.serving.sealing import Seals
from interlock.serving.store import StoredResponse

__all__ = ["ASKED", "Asked", "Before", "CacheSalt", "rendered", "salted"]

logger = logging.getLogger(__name__)

SEARCH: Final = {"type": "web_search_preview"}
HOSTED: Final = Hosted(
    {
        **dict.fromkeys(("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"), SEARCH),
        "code_interpreter": {"type": "code_interpreter"},
    },
    frozenset({"code_interpreter", "container", "web_search_preview"}),
)
"""The tools that vLLM runs; it knows some of them by the labels of MCP servers too."""

EFFORTS: Final = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""The efforts that gpt-oss does not know, each with the nearest that it knows."""

CacheSalt: TypeAlias = Literal["tenant", "key", "none"]
"""Which requests share vLLM's prefix cache: those of one tenant, those of one tenant with one `prompt_cache_key`, or all."""

LOGPROBS: Final = "message.output_text.logprobs"
TIERS: Final = ("auto", "default", "flex", "scale", "priority")


@frozen
class Asked:
    """A request that came through our routes.

    Args:
        body: As it was sent, before anything was changed.
        dialect: What its client speaks.
        read_by: The body by which the model's calls are read: with the tools that its input brings beside its own, and with the
            choice among those that are offered.
        seals: Seal what its client is to carry.
        items: The conversation that it asks to go on, its own input last; each item has an id.
        streamed: Whether its client wants a stream; vLLM is asked for one in any case.
        membership: Its part in a conversation that the client has created; None if it names none.
        generate: Whether output is wanted; without it the prompt is rendered and counted.
        driver: The driver of the response, if that has begun already, and goes on from a conversation that was compacted.
        prompts: The lengths in tokens of the prompts that vLLM has rendered for it.
    """

    body: Mapping[str, object] = field(repr=False)
    dialect: Dialect
    read_by: Mapping[str, object] = field(repr=False)
    seals: Seals
    items: tuple[Item, ...] = field(default=(), repr=False)
    membership: Membership | None = None
    streamed: bool = True
    generate: bool = True
    driver: ResponseDriver[bytes] | None = field(default=None, repr=False)
    prompts: list[int] = field(factory=list[int], init=False)

    def stored(self, response: Mapping[str, object]) -> StoredResponse:
        """Return a response as it is stored.

        Args:
            response: The response object.
        """
        return StoredResponse(response, self.items)

    @property
    def compacts_only(self) -> bool:
        """Whether the conversation is to be compacted and nothing else."""
        return bool(self.items) and self.items[-1]["type"] == "compaction_trigger"

    @property
    def compact_threshold(self) -> int | None:
        """The tokens of a prompt beyond which the conversation is compacted before the model answers; None for never."""
        return threshold_of(self.body)


ASKED: Final[ContextVar[Asked | None]] = ContextVar("interlock_asked", default=None)
"""What is asked in the task at hand; None for a request that did not come through our routes."""


@frozen
class Before:
    """What was said before a request.

    Args:
        stored: The items of responses that are stored, by their ids.
        items: The conversation until then.
    """

    stored: Mapping[str, Item] = field(factory=dict[str, Item])
    items: Sequence[Item] = ()

    def said(self, given: Sequence[Item]) -> list[Item]:
        """Return items with those that references mean in their place, but for those that are there already.

        Args:
            given: Of the request's input.

        Raises:
            ApiError: 404; a reference means no item that there is.
        """
        known = {item["id"] for item in (*self.items, *given) if "id" in item and item["type"] != "item_reference"}
        return [said for item in given if (said := resolved(item, known, self.stored)) is not None]


def rendered(
    body: Mapping[str, object], before: Before, open_sealed: OpenSealed = unopened, *, harmony: bool
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the body of a request as vLLM can render it, and the one by which what the model writes is read.

    Args:
        body: As it was sent; it stays as it is.
        before: What was said before.
        open_sealed: Opens items with encrypted content.
        harmony: Whether the model writes harmony.

    Raises:
        ApiError: 400 for an item of a type that nobody knows or whose shape is wrong, and if there is no item at all; 404 for a
            reference to an item that there is not.
    """
    asked = read_hosted(body)
    require_input(asked.input, continues=bool(before.items))
    offered = offer(map(members, elements(body.get("tools"))), body.get("tool_choice"), (*before.items, *asked.input), HOSTED)
    for kind in offered.left_out:
        logger.warning("a tool of the type %s is not offered to the model: no function can stand for it", kind)
    theirs = {**body, "include": [LOGPROBS] if LOGPROBS in elements(body.get("include")) else None}
    theirs.pop("context_management", None)  # which is ours to keep
    if body.get("tools") is not None or offered.tools:
        theirs["tools"] = list(offered.tools)
    choice = _choice(offered)
    if choice is not None:
        theirs["tool_choice"] = choice
    if body.get("service_tier") not in TIERS:
        theirs.pop("service_tier", None)
    effort = members(body.get("reasoning")).get("effort")
    if harmony and effort in EFFORTS:
        theirs["reasoning"] = {**members(body["reasoning"]), "effort": EFFORTS[str(effort)]}
    theirs.pop("previous_response_id", None)  # what it means is put into the input: vLLM has nothing stored
    if not isinstance(body.get("input"), str) or before.items:
        said = window([*before.items, *before.said(asked.input)])
        theirs["input"] = [*plain(said, open_sealed, pictures=not harmony)]
    return theirs, {**body, "tools": list(offered.declared), "tool_choice": choice}


def salted(body: Mapping[str, object], tenant: str, apart: CacheSalt) -> dict[str, str]:
    """Return the salt of vLLM's prefix cache for a request: requests share cached prefixes if they have the same salt.

    Args:
        body: As it was sent; a `cache_salt` of its own counts more.
        tenant: Whose request it is; where there is one tenant alone, its name is empty and it needs no salt.
        apart: What keeps requests apart: their tenants, these and their `prompt_cache_key`, or nothing.
    """
    key = body.get("prompt_cache_key") if apart == "key" else None
    name = f"{tenant}\0{key or ''}"
    if apart == "none" or name == "\0" or body.get("cache_salt") is not None:
        return {}
    return {"cache_salt": sha256(name.encode()).hexdigest()}


def _choice(offered: Offer) -> object:
    """Return a choice that vLLM takes: where nothing is offered, nothing can be chosen."""
    return "none" if offered.choice == "auto" and not offered.tools else offered.choice
