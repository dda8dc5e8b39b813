"""The words of the generated pages: what each machine is for, which streams show it, and what keeps each rule."""

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
    """What the page of a machine says beside its table.

    Args:
        about: A paragraph.
        recordings: The names of the recordings that show it.
        deltas: The deltas that show it, where the server makes the item and no recording has it.
        triggers: The triggers of a path that shows it, for a process.
    """

    about: str
    recordings: tuple[str, ...] = ()
    deltas: tuple[Delta, ...] = ()
    triggers: tuple[str, ...] = ()


LOOKUP: Final = {"server_label": "docs", "name": "lookup", "arguments": '{"query": "install"}'}
CALL: Final = {"call_id": "call_1"}
TASK: Final = '{"task": "Write the summary"}'
FOUND: Final = {"file_id": "file_1", "filename": "policy.md", "score": 0.9, "text": "Within 30 days."}

SUBJECTS: Final[Mapping[str, Subject]] = {
    "response": Subject(
        "Every stream is one path through this machine, and the paths of its items lie inside. A client that reads "
        "only these events still knows when the response begins, that it runs, and how it ended. Every exit except "
        "`complete` first ends the items that are open. The API has no event for a cancelled response, so it ends "
        "with `response.incomplete`. A response that ends while it is queued emits `response.in_progress` first, "
        "because every stream has that event once.",
        ("answer", "cut-in-message", "engine-error"),
    ),
    "reasoning": Subject(
        "What a model writes before it answers. A reasoning item has parts of reasoning text, parts of summary, or "
        "both; each part ends before the next begins. White space waits in `pending`, so blank reasoning never "
        "becomes an item (R18). `reveal` adds reasoning that is encrypted or withheld: an item without text.",
        ("answer", "cut-in-reasoning"),
    ),
    "message": Subject(
        "What a model says to the user: a preamble before a tool call (`phase` is `commentary`) or the answer "
        "(`final_answer`). Parts of output text and refusals may alternate. White space waits in `pending`, so a "
        "blank message never becomes an item (R18); when other text follows, the white space is part of the first "
        "delta. A part has log probabilities for all of its text or for none: `split` ends the open part and begins "
        "another where that changes (R15).",
        ("answer", "cut-in-message"),
    ),
    "function_call": Subject(
        "The model writes a name and arguments. The client runs the function and sends its output with the next "
        "request. A call without a single argument token takes the same path and is a complete item (R18).",
        ("preamble-and-function-call", "cut-in-arguments"),
    ),
    "custom_tool_call": Subject(
        "Like a function call, but the tool takes text instead of JSON: a patch, a query, a program.",
        ("custom-tool-call",),
    ),
    "mcp_call": Subject(
        "The model writes the arguments and the server calls the tool. A call whose arguments are complete waits in "
        "`ready` until the tool starts; only then is the event that ends the arguments sent (R11). If the response ends "
        "or is cancelled meanwhile, the call fails.",
        ("mcp-call", "mcp-call-that-fails"),
    ),
    "mcp_list_tools": Subject(
        "Before a model can call the tools of an MCP server, Interlock asks that server for a list of its tools. The item "
        "shows the list to the client, or the error. The model does not write it.",
        deltas=(
            Open("mcp_list_tools", {"server_label": "docs"}),
            Succeed("mcpl_1", {"tools": [{"name": "lookup", "input_schema": {"type": "object"}}]}),
        ),
    ),
    "mcp_approval_request": Subject(
        "Takes the place of a call to an MCP tool that needs approval. The response ends, and the client's next "
        "request brings the answer.",
        deltas=(Open("mcp_approval_request", LOOKUP),),
    ),
    "code_interpreter_call": Subject(
        "The model writes code and the server runs it. The code is done when it is written, before it runs. A call "
        "whose code never runs fails from `ready`. A run that fails has no `completed` event.",
        ("code-interpreter", "code-interpreter-that-fails"),
    ),
    "web_search_call": Subject(
        "The model searches the web, opens a page, or looks up text in a page; `action` says which. The item is added "
        "when the action is complete, so the action does not stream. A search that fails has no `completed` event.",
        ("web-search", "web-search-that-fails"),
    ),
    "file_search_call": Subject(
        "A search in files. The queries are known when the item opens, so only its progress streams.",
        deltas=(
            Open("file_search_call", {"queries": ["refunds"]}),
            Close(),
            Run("fs_1"),
            Succeed("fs_1", {"results": [FOUND]}),
        ),
    ),
    "image_generation_call": Subject(
        "The server makes the image while the stream goes on. Each partial image takes the `progress` edge once. The "
        "API has no status `incomplete` for it: an image that is cut has failed.",
        deltas=(
            Open("image_generation_call"),
            Close(),
            Run("ig_1"),
            Progress("ig_1", {"partial_image_b64": "iVBORw0KGgo="}),
            Succeed("ig_1", {"result": "iVBORw0KGgoAAAANSUhEUg=="}),
        ),
    ),
    "apply_patch_call": Subject(
        "The model writes a patch for one file and the client applies it; the next request brings the "
        "`apply_patch_call_output`. The diff streams. `operation` names the file and what happens to it. Deleting a "
        "file has no diff and hence no diff events.",
        deltas=(
            Open("apply_patch_call", {"operation": {"type": "update_file", "path": "a.txt", "diff": ""}}),
            "@@\n-stop",
            "\n+go\n",
            Close(),
        ),
    ),
    "shell_call": Subject(
        "The model writes commands for a shell, the client's or a container's on the server. Each command is a part.",
        deltas=(Open("shell_call"), "ls ", "-l", EndPart(), "pwd", Close()),
    ),
    "shell_call_output": Subject(
        "If the server runs the commands of a shell call, this item streams what they print. The commands run one after "
        "another, and each ends with its outcome. If the shell fails or the response ends, the item keeps what was "
        "printed, and the outcome of the running command is a timeout.",
        deltas=(
            Open("shell_call_output", {"call_id": "call_1"}),
            Progress("sho_1", {"stdout": "a.txt\n", "stderr": ""}),
            EndOutput("sho_1", {"type": "exit", "exit_code": 0}),
            Succeed("sho_1"),
        ),
    ),
    "compaction": Subject(
        "When a conversation has become too long, the service replaces it with a form that only the service can read; "
        "the client sends that instead of the conversation. The item has no status: a compaction that failed has no "
        "`encrypted_content`.",
        deltas=(Open("compaction"), Run("cmp_1"), Succeed("cmp_1", {"encrypted_content": "c2VhbGVk"})),
    ),
    "local_shell_call": Subject(
        "The predecessor of `shell_call`: one command, which the client runs.",
        deltas=(Open("local_shell_call"), Close({"action": {"type": "exec", "command": ["ls"], "env": {}}})),
    ),
    "computer_call": Subject(
        "The model moves the mouse, types, or asks for a screenshot. The client does it and answers with a picture.",
        deltas=(Open("computer_call"), Close({"action": {"type": "screenshot"}})),
    ),
    "tool_search_call": Subject(
        "Where tools are declared but not loaded, the model searches for the ones that it needs. The server or the "
        "client finds them.",
        deltas=(Open("tool_search_call", {"execution": "client"}), Close({"arguments": {"goal": "weather"}})),
    ),
    "program": Subject(
        "The model writes a program that calls tools. Each call is an item of its own, whose `caller` names the program.",
        deltas=(Open("program", {"fingerprint": "f1"}), Close({"code": "await weather('Ulm')"})),
    ),
    "harmony": Subject(
        "This machine reads instead of writing: its triggers are tokens, and its effects act on the message that is "
        "being read. Every state has a row for every trigger that can come there (R17). A content token is `text`. "
        "Outside content a text token is `word` if it can still be part of a header, and `prose` if it cannot: then the "
        "header is over, although no `<|message|>` came. There is no final state, because a turn may end anywhere; "
        "`finish` and `cut` are the ends of a turn, and the next turn starts in the state that they lead to.",
        ("preamble-and-function-call",),
    ),
    "turns": Subject(
        "A run makes one response. It takes a slot, and the engine accepts or refuses the request. Then "
        "the conversation is compacted if it has become too long, the model generates, "
        "the server runs the tools that were called, and the model generates again until it calls no more of these tools. "
        "The effects of an edge name the work to do next; its result fires the next edge. Every state in which work is "
        "done has an edge for a failure and one for a client that leaves, which end the response.",
        triggers=("begin", "compact", "prepare", "go_on", "call", "go_on", "answer", "end", "settle", "leave"),
    ),
    "background": Subject(
        "A background response continues when its client disconnects. The process that generates it writes the events "
        "to the store in batches, and each write renews its lease on the response. During a write, new events wait. "
        "The last write and the end of the response are one commit. If another process holds the lease, this one "
        "stops.",
        triggers=("grow", "due", "grow", "written", "due", "cancel", "written", "grow", "end", "retry", "written"),
    ),
    "stored": Subject(
        "The life of one stored response, in every store. A background response is enqueued; then one process at a time "
        "writes its events under a lease. If the process dies, the lease lapses, and another process may end the response. "
        "The first end that is committed stays. Every other response is stored once, when it ends. When a client deletes a "
        "background response, it is cancelled first and then hidden: only those who read its events already still can, until "
        "their lease on the log lapses. Nothing is written when a lease lapses or a response expires: the next operation "
        "compares the store's clock and fires `lapse` or `expire`.",
        triggers=("enqueue", "append", "renew", "lapse", "adopt", "cancel", "finish", "hide", "lapse"),
    ),
    "conversation": Subject(
        "A conversation is a list of items that a client created. A response that continues it holds a lease on it, so "
        "that the items do not change meanwhile. When the response ends, its input and output are added in the same "
        "commit. When a lease has ended, the next operation on the conversation fires `lapse`. A response that ends later "
        "than that is still added, unless another response has taken the lease or a client has changed the items.",
        triggers=("create", "change", "hold", "renew", "join", "hold", "lapse", "join", "hold", "lapse", "hold", "delete"),
    ),
    "lane": Subject(
        "In WebSocket mode, the requests with one `stream_id` form a lane, and run one after another.",
        triggers=("ask", "ask", "cancel", "end", "ask", "leave", "end"),
    ),
    "steering": Subject(
        "Over a [WebSocket](../../guides/websocket.md#steering), a client can send input for a response that runs. The response "
        "ends at the next boundary of its output, and a successor goes on with the input. Each response has its own steering. "
        "Accepted input becomes part of a successor, or goes back to the client.",
        triggers=("steer", "steer", "require", "continue", "create"),
    ),
    "connection": Subject(
        "A connection in WebSocket mode has lanes, which run concurrently. It ends when the client disconnects, when the "
        "server shuts down, or at the first request after the connection has reached its age limit; running requests "
        "finish first.",
        triggers=("request", "expire", "request", "drain"),
    ),
    "server": Subject(
        "A server is a process, one of several with `--workers`. When it is asked to stop, it drains: it refuses new requests, "
        "and ends when no response is in progress, or when the time of `--drain` is over. A second signal ends it at once.",
        triggers=("ready", "stop", "idle", "close"),
    ),
    "container": Subject(
        "A container of the [code interpreter](../../guides/tools.md#code-interpreter) is a process that keeps the variables of "
        "one call for the next. Calls of one container take turns. Code that exceeds a limit ends it, because such code may "
        "have stopped anywhere.",
        triggers=("run", "end", "run", "end", "drop"),
    ),
    "async_call": Subject(
        "A call of an [async tool](../../guides/tools.md#async-tools) in a conversation, as the model reads it. Engines require "
        "an output next to each call, so the model reads there that the tool still runs, unless the client's own output comes "
        "next. A late output follows the call, which is repeated for it; what the model has read before does not change.",
        triggers=("continue", "answer", "continue", "end"),
    ),
    "upstream_connection": Subject(
        "A connection of a [gateway](../../guides/gateway.md) to its upstream. It has one request at a time, and is kept for "
        "the next one for a few seconds after a whole answer. Bytes that arrive while no request waits for them close it.",
        triggers=("send", "head", "end", "send", "head", "close"),
    ),
    "messages": Subject(
        "The transducer that writes Anthropic's [Messages](../../guides/dialects.md) from the events of a response. Its "
        "triggers are what the events say, and its effects make the events of the other API. At most one block is open: what "
        "the server's tools have to say meanwhile is held until the block ends.",
        triggers=("begin", "think", "think", "seal", "text", "text", "use", "close", "result", "call", "argue", "close", "end"),
    ),
    "chat": Subject(
        "The transducer that writes OpenAI's [Chat Completions](../../guides/dialects.md) from the events of a response. Its "
        "triggers are what the events say, and its effects make chunks. The calls of the server's tools and their results have "
        "no place in this API, so their triggers have no effect.",
        triggers=("begin", "think", "seal", "text", "close", "call", "argue", "argue", "close", "end"),
    ),
    **{
        kind: Subject(about, deltas=(Open(kind, {**example(kind), **values}),))
        for kind, about, values in (
            ("apply_patch_call_output", "Whether the client applied a patch.", CALL),
            (
                "local_shell_call_output",
                "The output of a command that the client ran for a `local_shell_call`.",
                {"output": "a.txt"},
            ),
            ("computer_call_output", "The screenshot after the actions of a `computer_call`.", CALL),
            ("tool_search_output", "The tools that a `tool_search_call` found.", CALL),
            ("program_output", "The result of a `program`.", {**CALL, "result": "18 °C"}),
            ("function_call_output", "The result of a function.", {"output": "18 °C"}),
            ("custom_tool_call_output", "The result of a custom tool.", {**CALL, "output": "done"}),
            ("mcp_approval_response", "The client's answer to an `mcp_approval_request`.", {"approval_request_id": "mcpr_1"}),
            ("additional_tools", "Tools that the model may use from here on.", {}),
            ("agent_message", "A message from one agent to another.", {"author": "planner", "recipient": "writer"}),
            ("multi_agent_call", "A call by which an agent starts, messages or stops other agents.", {"arguments": TASK}),
            ("multi_agent_call_output", "The result of a `multi_agent_call`.", CALL),
        )
    },
}
"""The subjects by the name of the machine; for a kind that is not here, the docstring of its type stands in."""


def subject_of(name: str) -> Subject:
    """Return the subject of a machine; for a kind of item without one, its docstring and the deltas of its path."""
    if name in SUBJECTS:
        return SUBJECTS[name]
    ways: dict[str, Delta] = {"close": Close(), "succeed": Succeed(f"{ITEMS[name].prefix}_1", result_fields(name, "result"))}
    ended = (delta for trigger, delta in ways.items() if trigger in LIFECYCLES[name].triggers)
    return Subject(getdoc(ITEMS[name]) or "", deltas=(Open(name, example(name)), *ended))
