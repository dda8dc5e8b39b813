"""Maps the ids of calls, and the names of functions, between the API and upstreams, which accept fewer of both.

Each side follows from the other, so both stay the same if a client sends the whole conversation itself.
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from attrs import define, evolve, field

from interlock.events.chat import split_extras
from interlock.events.items import ITEMS, required_fields
from interlock.parsers.routing import Route, Routing, flat_name
from interlock.serving.requests.input_items import JsonItem, short_id
from interlock.serving.requests.tool_offer import OfferedTool

SHARED_ID: Final = re.compile(r"call_(?!_)[a-zA-Z0-9_-]{1,35}")
"""Matches the ids of an upstream that are the same in the API."""
MARK: Final = "call__"
"""Begins the ids that stand for another id of the upstream."""
UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]|-(?=[0-9a-f]{2})")
"""Matches the characters that `MARK` ids write as bytes in hexadecimal digits."""
ESCAPED: Final = re.compile(rb"-([0-9a-f]{2})")
LONGEST_ID: Final = 1_024
"""The most characters of an id that is mapped; instead of a longer one, the server makes its own."""
FITTING_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""Matches the ids that most services accept from another one."""

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Matches the names that all services accept."""
KEPT: Final = 55
"""How many characters of another name are kept; eight digits of a digest follow."""
CALLS: Final = frozenset(kind for kind, item in ITEMS.items() if item.as_function_call and "name" in required_fields(item))
"""The items that call a tool by its name."""

Identity: TypeAlias = tuple[str, str, str]
"""The namespace, the server and the name of a tool."""


def api_call_id(upstream_id: object) -> str:
    """Return the API's id for an upstream's, or "" if it has none: only letters, digits, `_` and `-` after `call_`."""
    if not isinstance(upstream_id, str) or not upstream_id or len(upstream_id) > LONGEST_ID:
        return ""
    if SHARED_ID.fullmatch(upstream_id):
        return upstream_id
    return MARK + UNSAFE.sub(lambda match: "".join(f"-{byte:02x}" for byte in match[0].encode(errors="replace")), upstream_id)


def upstream_call_id(call_id: str) -> str:
    """Return the upstream's id for one of the API's, and a short id for one that another server made and services refuse."""
    plain, _ = split_extras(call_id)
    if not plain.startswith(MARK):
        return plain if FITTING_ID.fullmatch(plain) else short_id(call_id)
    escaped = plain.removeprefix(MARK).encode(errors="replace")
    return ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), escaped).decode(errors="replace") or short_id(call_id)


@define(eq=False)
class FunctionNames:
    """The names of one response's functions on the upstream, where they differ from `<namespace>__<name>`.

    A name is replaced if it has other characters than letters, digits, `_` and `-`, or more than 64, or if another tool has it.
    """

    _routes: dict[str, Route] = field(factory=dict[str, Route])
    """The tools whose names alone do not say what they are, by the names that the model may call them by."""
    _names: dict[Identity, str] = field(factory=dict[Identity, str])

    def routing(self, routing: Routing) -> Routing:
        """Return a routing that also maps the upstream's names, including names that are assigned later."""
        return evolve(routing, declared=ChainMap(self._routes, dict(routing.declared)))

    def assign(self, tools: Sequence[OfferedTool]) -> Sequence[OfferedTool]:
        """Return tools with distinct names; of tools outside of namespaces and servers, the first one keeps the name."""
        counts = Counter(tool.name for tool in tools)
        named: dict[str, OfferedTool] = {}
        for tool in tools:
            name, route, is_shared = tool.name, tool.route, counts[tool.name] > 1
            if route is not None and (not NAME.fullmatch(name) or (is_shared and any(_identity(route.fields)[:2]))):
                name = _other_name(name, _identity(route.fields))
                self._names[_identity(route.fields)] = name
            if route is not None and name not in named and (is_shared or name != tool.name):
                self._routes[name] = self._routes[f"functions.{name}"] = route
            named.setdefault(name, tool if name == tool.name else evolve(tool, tool={**tool.tool, "name": name}))
        return [*named.values()]

    def apply(self, item: JsonItem) -> JsonItem:
        """Return an item with the upstream's name of its tool, if that is another one."""
        if item["type"] not in CALLS:
            return item
        identity = _identity(item)
        namespace, label, name = identity
        flat = flat_name(namespace or label, name)
        other = self._names.get(identity) or (flat if NAME.fullmatch(flat) else _other_name(flat, identity))
        return item if other == flat else {**item, "name": other, "namespace": None, "server_label": None}


def _identity(fields: Mapping[str, object]) -> Identity:
    return (str(fields.get("namespace") or ""), str(fields.get("server_label") or ""), str(fields["name"]))


def _other_name(name: str, identity: Identity) -> str:
    digest = sha256("\0".join(identity).encode(errors="replace")).hexdigest()
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[:KEPT]}_{digest[:8]}"
