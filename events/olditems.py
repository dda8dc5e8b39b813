"""Output items: one specification for each kind, as data, and the snapshot of an item in any of its states.

It knows which fields an item of a kind has, what its id begins with, which statuses its type knows, and where a tool's
result or error goes. It does not know when an item changes: that is its lifecycle (`interlock.fsm.lifecycles`).

Source: the output item types of the `openai` package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

ItemKind: TypeAlias = Literal[
    "reasoning",
    "message",
    "function_call",
    "custom_tool_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "code_interpreter_call",
    "web_search_call",
    "file_search_call",
    "image_generation_call",
    "apply_patch_call",
    "shell_call",
    "shell_call_output",
    "local_shell_call",
    "computer_call",
    "tool_search_call",
    "program",
    "compaction",
    "apply_patch_call_output",
    "local_shell_call_output",
    "computer_call_output",
    "tool_search_output",
    "program_output",
    "function_call_output",
    "custom_tool_call_output",
    "mcp_approval_response",
    "additional_tools",
]
"""The items that this project can emit, by the API's names."""

_STATUSES: Final = ("in_progress", "completed", "incomplete")


@frozen
class PartSpec:
    """A part of an item: an entry of its `content`, or of a reasoning item's `summary`.

    Args:
        type: The part's `type`.
        text: The field that holds its text.
        lists: The fields that are lists and start empty.
    """

    type: str
    text: str
    lists: tuple[str, ...] = ()

    whole: bytes = field(init=False, eq=False, repr=False)
    """The part as JSON, with a gap for its text and for each list."""
    empty: bytes = field(init=False, eq=False, repr=False)
    """The part as it is when it opens."""

    def __attrs_post_init__(self) -> None:
        """Compile what is the same of every such part."""
        names = "".join(f',"{name}":%b' for name in (self.text, *self.lists))
        whole = f'{{"type":"{self.type}"{names}}}'.encode()
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "empty", whole % (b'""', *(b"[]" for _ in self.lists)))


OUTPUT_TEXT: Final = PartSpec("output_text", "text", ("annotations", "logprobs"))
REFUSAL: Final = PartSpec("refusal", "refusal")
REASONING_TEXT: Final = PartSpec("reasoning_text", "text")
SUMMARY_TEXT: Final = PartSpec("summary_text", "text")
COMMAND: Final = PartSpec("command", "command")
"""A command of a shell call, which its item shows as a plain text."""


@frozen
class ItemSpec:
    """One kind of item.

    Args:
        kind: The item's `type`.
        prefix: What its ids begin with.
        statuses: The values that its `status` can take; a kind without the field has none.
        text: The field that holds its own text (arguments, input, code), or an empty string. A field of an object that the
            item holds is written with a dot: `operation.diff`.
        lists: The lists of parts it has; one of an object is written likewise, and is then the only one.
        opens_with: The fields that must be known when it opens.
        constant: Fields that every item of the kind has, with the value they start with.
        made: Fields that hold an id which is made where none is known, with the prefix that it has in any case. Where such
            a field is a constant too, None says that there is none: a search of tools by a server has no `call_id`.
        result: What its tool gave if nothing else is said, for a kind that must show a result when it is completed.
        late: Fields that may be known only when the item is closed.
        opaque: Those of them that say something although nobody can read it: an item that has one is there without text.
        whole: Whether the item comes whole, with nothing between its `added` and its `done`, and so with any status.
    """

    kind: ItemKind
    prefix: str
    statuses: tuple[str, ...] = _STATUSES
    text: str = ""
    lists: tuple[str, ...] = ()
    opens_with: tuple[str, ...] = ()
    constant: Mapping[str, object] = field(factory=dict[str, object])
    made: Mapping[str, str] = field(factory=dict[str, str])
    result: Mapping[str, object] = field(factory=dict[str, object])
    late: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    whole: bool = False
    frame: bytes = field(init=False, eq=False, repr=False)
    """It as JSON, with gaps for what lasts, its status, and its text or the entries of each list; empty for a kind whose text or
    list is in an object that it holds, or that brings its status."""
    living: frozenset[str] = field(init=False, eq=False, repr=False)
    """The fields that do not last."""
    said: Mapping[str, bytes] = field(init=False, eq=False, repr=False)
    """The JSON of each status, with a comma before it."""
    running: bytes = field(init=False, eq=False, repr=False)
    """The same for a state of the lifecycle that the API has no status for."""

    def __attrs_post_init__(self) -> None:
        """Compile what is the same of every such item."""
        own = f',"{self.text}":%b' if self.text else "".join(f',"{name}":[%b]' for name in self.lists)
        frame = b"" if "." in own or self.whole else f"%b%b{own}}}".encode()
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "living", frozenset({"status", *filter(None, (self.text, *self.lists))} if frame else ()))
        object.__setattr__(self, "said", {status: f',"status":"{status}"'.encode() for status in self.statuses})
        object.__setattr__(self, "running", b',"status":"in_progress"' if self.statuses else b"")


def _whole(kind: ItemKind, prefix: str, opens_with: tuple[str, ...], statuses: tuple[str, ...] = _STATUSES) -> ItemSpec:
    """Return the specification of an item that comes whole: the output of a tool, above all."""
    return ItemSpec(kind, prefix, statuses, opens_with=opens_with, whole=True)


ITEMS: Final[Mapping[ItemKind, ItemSpec]] = {
    spec.kind: spec
    for spec in (
        ItemSpec(
            "reasoning",
            "rs",
            lists=("summary", "content"),
            late=("encrypted_content",),
            opaque=("encrypted_content",),
        ),
        ItemSpec("message", "msg", lists=("content",), constant={"role": "assistant"}),
        ItemSpec("function_call", "fc", text="arguments", opens_with=("name",), made={"call_id": "call"}),
        ItemSpec("custom_tool_call", "ctc", text="input", opens_with=("name",), made={"call_id": "call"}),
        ItemSpec(
            "mcp_call",
            "mcp",
            (*_STATUSES, "calling", "failed"),
            text="arguments",
            opens_with=("server_label", "name"),
            result={"output": ""},
        ),
        ItemSpec("mcp_list_tools", "mcpl", (), opens_with=("server_label",), constant={"tools": []}),
        ItemSpec("mcp_approval_request", "mcpr", (), opens_with=("server_label", "name", "arguments")),
        ItemSpec(
            "code_interpreter_call",
            "ci",
            (*_STATUSES, "interpreting", "failed"),
            text="code",
            constant={"outputs": None},
            made={"container_id": "cntr"},
        ),
        # openai 2.25 does not know the status `incomplete` of a web search; later ones do.
        ItemSpec("web_search_call", "ws", (*_STATUSES, "searching", "failed"), opens_with=("action",), late=("action",)),
        ItemSpec(
            "file_search_call",
            "fs",
            (*_STATUSES, "searching", "failed"),
            opens_with=("queries",),
            constant={"results": None},
        ),
        ItemSpec(
            "image_generation_call",
            "ig",
            ("in_progress", "completed", "generating", "failed"),
            constant={"result": None},
        ),
        ItemSpec(
            "apply_patch_call",
            "apc",
            ("in_progress", "completed"),
            text="operation.diff",
            opens_with=("operation",),
            made={"call_id": "call"},
        ),
        ItemSpec(
            "shell_call",
            "sh",
            lists=("action.commands",),
            constant={"action": {"commands": [], "max_output_length": None, "timeout_ms": None}},
            made={"call_id": "call"},
        ),
        ItemSpec("shell_call_output", "sho", lists=("output",), opens_with=("call_id",), constant={"max_output_length": None}),
        ItemSpec(
            "local_shell_call",
            "lsh",
            constant={"action": {"type": "exec", "command": [], "env": {}}},
            made={"call_id": "call"},
            late=("action",),
        ),
        ItemSpec(
            "computer_call",
            "cu",
            constant={"pending_safety_checks": []},
            made={"call_id": "call"},
            late=("action", "actions", "pending_safety_checks"),
        ),
        ItemSpec(
            "tool_search_call",
            "tsc",
            opens_with=("execution",),
            constant={"arguments": {}, "call_id": None},
            made={"call_id": "call"},
            late=("arguments",),
        ),
        ItemSpec(
            "program",
            "prog",
            (),
            opens_with=("fingerprint",),
            constant={"code": ""},
            made={"call_id": "call"},
            late=("code",),
        ),
        ItemSpec("compaction", "cmp", (), constant={"encrypted_content": ""}),
        _whole("apply_patch_call_output", "apco", ("call_id",), ("completed", "failed")),
        _whole("local_shell_call_output", "lsho", ("output",)),
        _whole("computer_call_output", "cuo", ("call_id", "output"), (*_STATUSES, "failed")),
        _whole("tool_search_output", "tso", ("execution", "tools", "call_id")),
        _whole("program_output", "progo", ("call_id", "result"), ("completed", "incomplete")),
        _whole("function_call_output", "fco", ("call_id", "output")),
        _whole("custom_tool_call_output", "ctco", ("call_id", "output")),
        _whole("mcp_approval_response", "mcpra", ("approval_request_id", "approve"), ()),
        _whole("additional_tools", "at", ("role", "tools"), ()),
    )
}
"""Every kind of item by its name."""
