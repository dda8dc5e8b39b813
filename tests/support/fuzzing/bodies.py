"""Strategies for requests: every parameter of `POST /v1/responses`, with valid, invalid and costly values; and heads of requests.

A request with a `type` is a frame for a WebSocket, and one with `lines` is the head of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

MODEL = "interlock-embedded"

SIZES = st.sampled_from([0, 1, 2, 70, 1_000, 30_000, 200_000])
UNITS = st.sampled_from(
    [
        "x",
        " ",
        "\u4e16",
        "(",
        "1+",
        "word ",
        "\n",
        "<|end|>",
        "\x00",
        "\U0001f600",
        "\ufffd",
        "\ud800",
        '"',
        "\\",
        "【1†L0】",
        ": ",
    ]
)
LONG = st.builds(lambda unit, size: unit * max(1, size // len(unit)), UNITS, SIZES)
WORDS = st.sampled_from(
    [
        "",
        "Hello",
        "call tool_1: Paris",
        "What is 6 * 7?",
        "Search for trains",
        "use a, then b",
        "null",
        "-1",
        "../..",
        "auto",
        "none",
        "required",
    ]
)
TEXTS = st.one_of(WORDS, WORDS, WORDS, st.text(max_size=20), LONG)
NUMBERS = st.one_of(
    st.integers(-3, 30),
    st.sampled_from([0.5, 1.0, -0.0, 1e308, 10**18, 2**63, 2**64, 10**400, 16, 100, 100_000]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
KEYS = st.sampled_from(
    ["type", "role", "content", "name", "id", "call_id", "tools", "text", "format", "$ref", "a", "", "<text>", "~"]
)
GARBAGE = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)), max_leaves=6
)


def deep(levels: int) -> object:
    """Return arrays within arrays."""
    value: object = []
    for _ in range(levels):
        value = [value]
    return value


MANY = st.builds(
    lambda value, size: [value] * min(size, 5_000_000 // len(repr(value))), SCALARS, st.sampled_from([100, 6_000, 60_000])
)
WRONG = st.one_of(GARBAGE, GARBAGE, MANY, st.builds(deep, st.sampled_from([5, 98, 101, 400])))


def mostly(good: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Return a strategy for good values, and one in forty that is wrong."""
    return st.integers(0, 39).flatmap(lambda drawn: WRONG if drawn == 39 else good)


def record(required: dict[str, object], optional: dict[str, object] | None = None) -> st.SearchStrategy[object]:
    """Return a strategy for objects with these members, of which any may be wrong."""
    return st.fixed_dictionaries(
        {name: mostly(_strategy(value)) for name, value in required.items()},
        optional={name: mostly(_strategy(value)) for name, value in (optional or {}).items()},
    )


def _strategy(value: object) -> st.SearchStrategy[object]:
    return value if isinstance(value, st.SearchStrategy) else st.just(value)


PATTERNS = st.sampled_from(
    [
        "^a*a*a*a*a*a*a*a*a*a*b$",
        "^(a+)+$",
        "((((a{64}){64}){64}){64}){64}",
        "(",
        "\\U0001F600",
        "\\N{BULLET}",
        "\\p{L}",
        "(?=a)a",
        "(a)\\1",
        "[^\\s\\S]",
        "[[a]",
        "(?i)a",
        "a{4294967296}",
        "(" * 400,
        "^[A-Z]{3}$",
        "(?P<n>a)(?P<n>b)",
        "(){1000000}",
    ]
)
COUNTS = st.sampled_from([0, 1, 2, 5, 900, 100_000, 10**12, 10**400, -1, 0.5])
NAMES = st.sampled_from(["a", "b", "city", "pattern", "$ref", "", "x" * 100])
REFERENCES = st.sampled_from(["#", "#/", "#/$defs/a", "#/properties/a", "#/anyOf/0", "http://127.0.0.1:9/x", "#/%", "a", ""])
SCHEMAS = st.recursive(
    st.one_of(
        st.booleans(),
        record(
            {"type": st.sampled_from(["string", ["string", "null"]])},
            {"pattern": PATTERNS, "minLength": COUNTS, "maxLength": COUNTS, "format": TEXTS, "default": TEXTS},
        ),
        record(
            {"type": st.sampled_from(["integer", "number"])},
            dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), NUMBERS),
        ),
        record({"enum": st.lists(SCALARS, max_size=4)}),
        record({"const": GARBAGE}),
        record({"$ref": REFERENCES}),
        record({"type": st.sampled_from(["boolean", "null", "thing"])}),
    ),
    lambda inner: st.one_of(
        record(
            {"type": "object", "properties": st.dictionaries(NAMES, inner, max_size=4)},
            {
                "required": st.lists(NAMES, max_size=3),
                "additionalProperties": inner,
                "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
                "minProperties": COUNTS,
                "$defs": st.dictionaries(NAMES, inner, max_size=2),
            },
        ),
        record(
            {"type": "array"},
            {
                "items": inner,
                "prefixItems": st.lists(inner, max_size=2),
                "minItems": COUNTS,
                "maxItems": COUNTS,
                "uniqueItems": st.booleans(),
                "contains": inner,
            },
        ),
        *(record({name: st.lists(inner, max_size=3)}) for name in ("allOf", "anyOf", "oneOf")),
        record({"not": inner}),
        record({"if": inner}, {"then": inner, "else": inner}),
    ),
    max_leaves=6,
)
WIDE = st.builds(
    lambda schema, size: {
        "type": "object",
        "properties": {f"p{n}": schema for n in range(min(size, 5_000_000 // len(str(schema))))},
    },
    SCHEMAS,
    st.sampled_from([50, 3_000]),
)
OBJECT_SCHEMAS = st.one_of(SCHEMAS, SCHEMAS, SCHEMAS, WIDE)

TOOL_NAMES = st.sampled_from(
    ["tool_1", "a", "b", "get_weather", "a b", "", "x" * 65, "x" * 129, "<|end|>", "python", "a__b", "b__a", "a.b", "functions.a"]
)
CALLED = st.one_of(
    record(
        {"type": "function", "name": TOOL_NAMES}, {"parameters": OBJECT_SCHEMAS, "strict": st.booleans(), "description": TEXTS}
    ),
    record(
        {"type": "custom", "name": TOOL_NAMES},
        {"format": record({"type": "grammar"}, {"syntax": st.sampled_from(["regex", "lark"]), "definition": PATTERNS})},
    ),
)
TOOL_LIST = st.lists(TOOL_NAMES, max_size=3)
APPROVALS = record({}, dict.fromkeys(("always", "never"), record({}, {"tool_names": TOOL_LIST, "read_only": st.booleans()})))
LABELS = st.one_of(TOOL_NAMES, st.sampled_from(["code_interpreter", "web_search_preview", "container"]))
COLLIDING = [
    {"type": "namespace", "name": space, "description": "", "tools": [{"type": "function", "name": name, "parameters": {}}]}
    for space, name in (("a__b", "c"), ("a", "b__c"), ("x" * 60, "y" * 60), ("x" * 60, "y" * 61), ("a.b", "c"), ("a b", "c"))
]
HOSTS = st.sampled_from(
    ["http://127.0.0.1:9/mcp", "http://[", "https://example.invalid/", "file:///etc/passwd", "", "http://h\n"]
)
TOOLS = st.one_of(
    CALLED,
    CALLED,
    record({"type": "namespace", "name": TOOL_NAMES, "tools": st.lists(CALLED, max_size=3)}, {"description": TEXTS}),
    record(
        {"type": "mcp", "server_label": LABELS},
        {
            "server_url": HOSTS,
            "headers": st.dictionaries(NAMES, TEXTS, max_size=2),
            "authorization": TEXTS,
            "allowed_tools": st.one_of(TOOL_LIST, record({}, {"tool_names": TOOL_LIST, "read_only": st.booleans()}), GARBAGE),
            "require_approval": st.one_of(st.sampled_from(["never", "always"]), APPROVALS, GARBAGE),
        },
    ),
    record({"type": st.sampled_from(["web_search", "web_search_preview", "code_interpreter", "local_shell", "from_the_future"])}),
    record({"type": "file_search", "vector_store_ids": st.lists(TEXTS, max_size=2)}),
)
TOOL_LISTS = st.one_of(
    st.lists(st.sampled_from(COLLIDING), max_size=4),
    st.lists(TOOLS, max_size=4),
    st.lists(TOOLS, max_size=4),
    st.builds(lambda size: [{"type": "function", "name": f"t{n}"} for n in range(size)], st.sampled_from([200, 1_024, 1_025])),
)
CHOICES = st.one_of(
    st.sampled_from(["none", "auto", "required", "any"]),
    record({"type": st.sampled_from(["function", "custom"]), "name": TOOL_NAMES}),
    record({"type": "mcp", "server_label": TOOL_NAMES}, {"name": TOOL_NAMES}),
    record({"type": st.sampled_from(["web_search", "code_interpreter", "nonsense"])}),
    record({"type": "allowed_tools", "mode": st.sampled_from(["auto", "required"]), "tools": st.lists(GARBAGE, max_size=3)}),
)

IDS = st.sampled_from(
    [
        *("c1", "c2", "msg_1", "", "resp_1", "x" * 41, "x" * 4_096, "x" * 5_000, "x" * 1_000_000),
        *("call_1", "call__1", "call__", "call__-zz-ff", "call__-f0-9f", "g6fVbXS8K", "functions.f:0", "a b", "\ud83d", "\x00"),
    ]
)
PARTS = st.one_of(
    record({"type": st.sampled_from(["input_text", "output_text", "text", "summary_text", "reasoning_text"]), "text": TEXTS}),
    record({"type": "refusal", "refusal": TEXTS}),
    record({"type": "input_image"}, {"image_url": TEXTS, "file_id": TEXTS, "detail": st.sampled_from(["auto", "low"])}),
    record({"type": "input_file"}, {"file_data": TEXTS, "file_url": TEXTS, "filename": TEXTS}),
    record({"type": "input_audio", "input_audio": record({"data": TEXTS, "format": "wav"})}),
)
CONTENT = st.one_of(TEXTS, st.lists(PARTS, max_size=4))
ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool"])
ABOUT = {"id": IDS, "status": st.sampled_from(["completed", "incomplete", "x"])}
ITEMS = st.one_of(
    record({"role": ROLES, "content": CONTENT}, {**ABOUT, "type": "message", "phase": TEXTS}),
    record({"role": "user", "content": TEXTS}),
    record({"type": "reasoning"}, {**ABOUT, "summary": st.lists(PARTS, max_size=2), "content": st.lists(PARTS, max_size=2)}),
    record({"type": "function_call", "call_id": IDS, "name": TOOL_NAMES, "arguments": TEXTS}, ABOUT),
    record({"type": "function_call_output", "call_id": IDS, "output": CONTENT}, ABOUT),
    record({"type": "custom_tool_call", "call_id": IDS, "name": TOOL_NAMES, "input": TEXTS}, ABOUT),
    record({"type": "custom_tool_call_output", "call_id": IDS, "output": CONTENT}, ABOUT),
    record({"type": "item_reference", "id": IDS}),
    record({"type": "mcp_approval_request", "server_label": TOOL_NAMES, "name": TOOL_NAMES, "arguments": TEXTS}, ABOUT),
    record({"type": "mcp_approval_response", "approval_request_id": IDS, "approve": st.booleans()}, ABOUT),
    record({"type": "mcp_list_tools", "id": IDS, "server_label": TOOL_NAMES, "tools": st.lists(GARBAGE, max_size=2)}),
    record(
        {"type": st.sampled_from(["web_search_call", "code_interpreter_call", "mcp_call", "compaction", "shell_call_output"])},
        {**ABOUT, "call_id": IDS, "action": GARBAGE, "outputs": GARBAGE, "output": GARBAGE, "encrypted_content": TEXTS},
    ),
)
FILES = st.lists(
    st.one_of(
        st.just({"type": "input_text", "text": "seen"}),
        st.just({"type": "input_image", "image_url": "data:image/png;base64,aGk="}),
        record({"type": "input_file"}, {"file_data": TEXTS, "file_url": TEXTS, "file_id": IDS, "filename": TEXTS}),
        PARTS,
    ),
    max_size=3,
)
CALLED_ITEMS = st.sampled_from([("function_call", "arguments"), ("custom_tool_call", "input")])


@st.composite
def conversations(draw: st.DrawFn) -> list[object]:
    """Draw calls, their outputs and messages between them, in orders that Chat Completions refuses too."""
    items: list[object] = [{"role": "user", "content": "call tool_1"}]
    unanswered: list[tuple[str, str]] = []
    for step in draw(st.lists(st.sampled_from(["call", "call", "output", "output", "user", "reasoning"]), max_size=8)):
        if step == "call":
            kind, text = draw(CALLED_ITEMS)
            call_id = draw(IDS)
            name, namespace = draw(TOOL_NAMES), draw(st.sampled_from([{}, {}, {"namespace": "a__b"}, {"namespace": "x" * 60}]))
            items.append({"type": kind, "call_id": call_id, "name": name, text: draw(TEXTS), **namespace})
            unanswered.append((kind, call_id))
        elif step == "output" and unanswered:
            kind, call_id = unanswered.pop(draw(st.integers(0, len(unanswered) - 1)))
            items.append({"type": f"{kind}_output", "call_id": call_id, "output": draw(st.one_of(TEXTS, FILES))})
        elif step == "user":
            items.append({"role": "user", "content": "And?"})
        elif step == "reasoning":
            items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]})
    return items


def repeated(item: object) -> list[object]:
    """Return an item many times, in at most five million characters."""
    return [item] * min(4_000, 5_000_000 // len(str(item)))


INPUTS = st.one_of(TEXTS, TEXTS, st.lists(ITEMS, max_size=4), conversations(), conversations(), ITEMS.map(repeated))
FORMATS = st.one_of(
    record({"type": st.sampled_from(["text", "json_object", "yaml"])}),
    record({"type": "json_schema", "name": "n", "schema": OBJECT_SCHEMAS}, {"strict": st.booleans(), "description": TEXTS}),
)
PAIRS = st.dictionaries(st.one_of(NAMES, TEXTS), TEXTS, max_size=18)
NOT_SERVED = st.one_of(st.none(), st.none(), GARBAGE)

PARAMETERS: dict[str, st.SearchStrategy[object]] = {
    "model": st.just(MODEL),
    "input": INPUTS,
    "access_programs": record({}, {"cyber": st.sampled_from(["standard", "daybreak_blue", "x"])}),
    "background": st.booleans(),
    "background_options": record({}, {"completion_window": st.sampled_from(["soonest", "8h", "x"])}),
    "client_metadata": PAIRS,
    "context_management": st.lists(
        record({"type": st.sampled_from(["compaction", "compaction", "x"])}, {"compact_threshold": COUNTS}), max_size=2
    ),
    "conversation": st.one_of(st.none(), st.none(), IDS, record({"id": IDS}), GARBAGE),
    "frequency_penalty": NUMBERS,
    "image": record({}, {"context_compression": st.sampled_from(["auto", "disabled", "x"])}),
    "include": st.lists(
        st.sampled_from(["message.output_text.logprobs", "reasoning.encrypted_content", "code_interpreter_call.outputs", "x"]),
        max_size=3,
    ),
    "instructions": TEXTS,
    "max_output_tokens": st.one_of(NUMBERS, st.sampled_from([16, 17, 40])),
    "max_tool_calls": NUMBERS,
    "metadata": PAIRS,
    "moderation": record({"model": TEXTS}, {"policy": record({}, {"input": record({"mode": st.sampled_from(["block", "x"])})})}),
    "multi_agent": record({"enabled": st.booleans()}, {"max_concurrent_subagents": COUNTS}),
    "parallel_tool_calls": st.booleans(),
    "presence_penalty": NUMBERS,
    "previous_response_id": IDS,
    "prompt": NOT_SERVED,
    "prompt_cache_key": TEXTS,
    "prompt_cache_options": record({}, {"mode": st.sampled_from(["implicit", "explicit", "x"]), "prewarm": st.booleans()}),
    "prompt_cache_retention": st.sampled_from(["in_memory", "24h", "x"]),
    "reasoning": record({}, {"effort": st.sampled_from(["none", "minimal", "low", "high", "max", "x"]), "summary": TEXTS}),
    "safety_identifier": TEXTS,
    "service_tier": st.sampled_from(["auto", "default", "flex", "priority", "fast", "x"]),
    "store": st.booleans(),
    "stream": st.booleans(),
    "stream_options": record({}, {"include_obfuscation": st.booleans()}),
    "temperature": NUMBERS,
    "text": record({}, {"format": FORMATS, "verbosity": st.sampled_from(["low", "high"])}),
    "tool_choice": CHOICES,
    "tools": TOOL_LISTS,
    "top_logprobs": st.integers(-1, 21),
    "top_p": NUMBERS,
    "truncation": st.sampled_from(["auto", "disabled", "x"]),
    "user": TEXTS,
}
"""A strategy for each parameter of a request."""

FREQUENT = ("stream", "tools", "tool_choice", "text", "background")
"""The parameters that change most of a server's work, and are drawn more often."""


@st.composite
def requests(draw: st.DrawFn) -> dict[str, object]:
    """Draw the body of a request: a model, an input and some of the other parameters, most of them valid."""
    others = draw(st.lists(st.one_of(st.sampled_from(FREQUENT), st.sampled_from(sorted(PARAMETERS))), max_size=6, unique=True))
    names = ["model", "input", *(name for name in others if name not in ("model", "input"))]
    body = {name: draw(mostly(PARAMETERS[name]) if name != "model" else PARAMETERS[name]) for name in names}
    body.setdefault("store", False)
    return body


FRAME_TYPES = st.sampled_from([*["response.create"] * 8, "response.steer", "response.append", "", 7])
STREAM_IDS = st.sampled_from(["a", "lane-1.x_Y", "", "a b", "x" * 257])


@st.composite
def frames(draw: st.DrawFn) -> dict[str, object]:
    """Draw a frame for a WebSocket that gets an answer, most often a request."""
    body = draw(requests())
    body["type"] = draw(FRAME_TYPES)
    optional = {"stream_id": STREAM_IDS, "generate": st.booleans(), "previous_response_id": IDS}
    return body | {name: draw(mostly(values)) for name, values in optional.items() if draw(st.booleans())}


LINES = st.tuples(
    st.sampled_from(
        ["x-a", "x-a", "accept", "cookie", "host", "content-length", "transfer-encoding", "connection", "a b", "", "\x00"]
    ),
    st.sampled_from(["a", "a", "", "1", "chunked", "é", "a b", ",", "\t", "\r\n b", "\x00", "keep-alive"]),
    st.sampled_from([0, 1, 600, 70_000, 3_000_000]),
    st.sampled_from([1, 1, 1, 2, 199, 201, 20_000]),
)
"""The name of a header, the repeated part of its value, the repetitions, and how often the header occurs."""


@st.composite
def heads(draw: st.DrawFn) -> dict[str, object]:
    """Draw the head of a request, with few headers or a flood of them."""
    path = draw(st.sampled_from(["/v1/models", "/v1/models", "/health", "*", ""]))
    return {"path": path, "more": draw(st.sampled_from([0, 0, 9_000, 1_000_000])), "lines": draw(st.lists(LINES, max_size=5))}


def head_of(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a head that `heads` has drawn."""
    lines = [f"GET {body['path']}{'a' * body['more']} HTTP/1.1", "host: 127.0.0.1", "connection: close"]
    for name, unit, size, count in body["lines"]:
        lines += [f"{name}: {unit * (size // len(unit or 'a'))}"] * min(count, max(1, 60_000_000 // (size or 1)))
    return "\r\n".join([*lines, "", ""]).encode()
