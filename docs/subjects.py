"""What the generated pages say of each lifecycle beside its table: who makes the item, and which streams show it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getdoc
from typing import Final

from attrs import frozen

from interlock.events.items import ITEMS, example, result_fields
from interlock.fsm.deltas import Close, Delta, EndOutput, EndPart, Open, Progress, Run, Succeed
from interlock.fsm.lifecycles import LIFECYCLES


@frozen
class Subject:
    """The words of one page.

    Args:
        about: A paragraph.
        recordings: The names of those that show it.
        told: The deltas that show it, where the server makes the item and so no recording of a model does.
        fired: The triggers of a walk that shows it, for a machine that no stream shows.
    """

    about: str
    recordings: tuple[str, ...] = ()
    told: tuple[Delta, ...] = ()
    fired: tuple[str, ...] = ()


LOOKUP: Final = {"server_label": "docs", "name": "lookup", "arguments": '{"query": "install"}'}
FOUND: Final = {"file_id": "file_1", "filename": "policy.md", "score": 0.9, "text": "Within 30 days."}

SUBJECTS: Final[Mapping[str, Subject]] = {
    "response": Subject(
        "Every stream is one walk through this machine; the walks of the items lie inside of it. A client that reads nothing "
        "but these events still knows when the stream begins, that it runs, and how it ended. Each way out but `complete` "
        "first ends the items that are open.",
        ("answer", "cut-in-message", "engine-error"),
    ),
    "reasoning": Subject(
        "What a model thinks before it speaks. Most models write reasoning text, some write summaries, and a reasoning item "
        "can have both; each part ends before the next begins, whichever kind it is.",
        ("answer", "cut-in-reasoning"),
    ),
    "message": Subject(
        "What a model says to the user: a preamble before it calls a tool (`phase` is `commentary`) or the answer "
        "(`final_answer`). Refusals are parts of a message too, and the table allows them to alternate with text.",
        ("answer", "cut-in-message"),
    ),
    "function_call": Subject(
        "The model writes a name and arguments; the client runs the function and sends what it gave with its next request. "
        "A call without a single token of arguments takes the same way and is a whole item (R18).",
        ("preamble-and-function-call", "cut-in-arguments"),
    ),
    "custom_tool_call": Subject(
        "The sibling of a function call for tools that take text instead of JSON: a patch, a query, a program.",
        ("custom-tool-call",),
    ),
    "mcp_call": Subject(
        "The model writes the arguments and the server calls the tool. Between the two the item waits in `ready`: that wait "
        "is a state because anything can happen in it, a cancellation or the end of the response included.",
        ("mcp-call", "mcp-call-that-fails"),
    ),
    "mcp_list_tools": Subject(
        "Before a model can call the tools of an MCP server, somebody has to ask for them. It is an item because it can take "
        "long and can fail, and a client wants to show that.",
        told=(
            Open("mcp_list_tools", {"server_label": "docs"}),
            Succeed("mcpl_1", {"tools": [{"name": "lookup", "input_schema": {"type": "object"}}]}),
        ),
    ),
    "mcp_approval_request": Subject(
        "Where a request says that its MCP tools need approval, the call is not made but asked for. The response ends, and "
        "the client's next request brings the answer.",
        told=(Open("mcp_approval_request", LOOKUP),),
    ),
    "code_interpreter_call": Subject(
        "The model writes code, the server runs it in a container. The code ends when it is written, not when it runs, so "
        "that a client can show it while it waits.",
        ("code-interpreter", "code-interpreter-that-fails"),
    ),
    "web_search_call": Subject(
        "A search, a page opened, or a text looked for in it; `action` says which. The arguments are a few tokens and must be "
        "known before the item can be shown, so nothing of them streams.",
        ("web-search", "web-search-that-fails"),
    ),
    "file_search_call": Subject(
        "A search in the files that the request gave. Nothing of it streams but its progress.",
        told=(
            Open("file_search_call", {"queries": ["refunds"]}),
            Close(),
            Run("fs_1"),
            Succeed("fs_1", {"results": [FOUND]}),
        ),
    ),
    "image_generation_call": Subject(
        "The image is made by the server while the stream goes on; each partial image is one more turn of the loop.",
        told=(
            Open("image_generation_call"),
            Close(),
            Run("ig_1"),
            Progress("ig_1", {"partial_image_b64": "iVBORw0KGgo="}),
            Succeed("ig_1", {"result": "iVBORw0KGgoAAAANSUhEUg=="}),
        ),
    ),
    "apply_patch_call": Subject(
        "The model writes a patch for one file and the client applies it; what came of it is an `apply_patch_call_output` of the "
        "next request. The diff streams. `operation` says what is done to which file.",
        told=(
            Open("apply_patch_call", {"operation": {"type": "update_file", "path": "a.txt", "diff": ""}}),
            "@@\n-stop",
            "\n+go\n",
            Close(),
        ),
    ),
    "shell_call": Subject(
        "The model writes commands for a shell, the client's or one in a container of the server. Each command is a part.",
        told=(Open("shell_call"), "ls ", "-l", EndPart(), "pwd", Close()),
    ),
    "shell_call_output": Subject(
        "Where the server runs the commands of a shell call, it shows what they print while they run.",
        told=(
            Open("shell_call_output", {"call_id": "call_1"}),
            Progress("sho_1", {"stdout": "a.txt\n", "stderr": ""}),
            EndOutput("sho_1", {"type": "exit", "exit_code": 0}),
            Succeed("sho_1"),
        ),
    ),
    "compaction": Subject(
        "Where a conversation has become too long, the service puts it into a form that it alone can read, and the client sends "
        "that instead of the conversation.",
        told=(Open("compaction"), Run("cmp_1"), Succeed("cmp_1", {"encrypted_content": "c2VhbGVk"})),
    ),
    "local_shell_call": Subject(
        "The older sibling of a shell call: one command, which the client runs.",
        told=(Open("local_shell_call"), Close({"action": {"type": "exec", "command": ["ls"], "env": {}}})),
    ),
    "computer_call": Subject(
        "The model moves the mouse, types, or wants to see the screen; the client does it and answers with a picture.",
        told=(Open("computer_call"), Close({"action": {"type": "screenshot"}})),
    ),
    "tool_search_call": Subject(
        "Where tools are offered without being loaded, the model searches for those that it needs; the server or the client "
        "finds them.",
        told=(Open("tool_search_call", {"execution": "client"}), Close({"arguments": {"goal": "weather"}})),
    ),
    "program": Subject(
        "The model writes a program that calls tools; the calls are items of their own, and say in `caller` which program "
        "made them.",
        told=(Open("program", {"fingerprint": "f1"}), Close({"code": "await weather('Ulm')"})),
    ),
    "harmony": Subject(
        "This is the one machine that reads instead of writes: its triggers are tokens, and what an edge does is done to the "
        "message being read. It has no final state, because a turn may end anywhere; `finish` and `cut` are the ends of a "
        "turn, and the next one starts where they lead.",
        ("preamble-and-function-call",),
    ),
    "turns": Subject(
        "How one response is made, by the standalone server as in vLLM: the conversation is compacted if it has become too long, "
        "the model generates, the server runs what it called, the model goes on. Every state that lasts can fail, and can be "
        "left; both end the response, wherever it is.",
        fired=("begin", "compact", "prepare", "go_on", "call", "go_on", "answer", "end", "settle"),
    ),
    "background": Subject(
        "A response that is made in the background goes on without its client. Whoever makes it owns it: it writes the events to "
        "the store in batches, renews its lease by that, and ends the response with its last write. One write is on its way at "
        "a time. When the lease is somebody else's, it stops.",
        fired=("grow", "due", "grow", "written", "due", "cancel", "written", "grow", "end", "retry", "written"),
    ),
    "stored": Subject(
        "What a store holds may outlive the process that made it, and several processes may share it. This is what can happen to "
        "one response there, whichever store it is: one owner at a time writes, whoever finds it lost may end it, and the first "
        "end that is committed stays.",
        fired=("enqueue", "append", "renew", "lapse", "adopt", "cancel", "finish", "trim", "expire"),
    ),
    "conversation": Subject(
        "A conversation that a client has created is a list of items. A response that is made in it holds it until it has ended, "
        "and then adds what was asked and answered, in the commit of its own end; nobody else changes the items meanwhile.",
        fired=("create", "change", "hold", "renew", "join", "hold", "lapse", "delete"),
    ),
    "lane": Subject(
        "In WebSocket mode a lane holds the requests of one `stream_id`, and answers them one after another.",
        fired=("ask", "begun", "ask", "cancel", "end", "ask", "begun", "leave", "end"),
    ),
    "connection": Subject(
        "A connection in WebSocket mode holds lanes, which run side by side. It ends when its client leaves, when the server "
        "shuts down, or when it is too old and nothing is in flight any more.",
        fired=("request", "expire", "request", "drain"),
    ),
}
"""What is said of each, by its name; of a kind of item that is not here, what its type says."""


def subject_of(name: str) -> Subject:
    """Return the words of a page; for a kind of item of which nothing special is said, its docstring and the way to its end."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    ways: dict[str, Delta] = {"close": Close(), "succeed": Succeed(f"{ITEMS[name].prefix}_1", result_fields(name, "result"))}
    ended = (delta for trigger, delta in ways.items() if trigger in LIFECYCLES[name].triggers)
    return Subject(getdoc(ITEMS[name]) or "", told=(Open(name, example(name)), *ended))
