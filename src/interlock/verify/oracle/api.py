"""The events and items of the API, written by hand for the oracle: their fields (rules R7 and R14 of docs/rules.md) and order.

A row of fields has a type and its fields as `name:type`. `?` marks an optional field, `+` a field that is optional until the item
is done, and `|` separates types. `<name>` is an object of `OBJECTS`, `*` precedes the type of a list's entries, a type with a
final `_` is an id with that prefix, and any other word that is not a JSON type or `any` is a literal string. Rows of events and
items omit `type` and `agent`; rows of events also omit `stream_id`, and `sequence_number`, which R2 checks.
"""

from __future__ import annotations

import re
from typing import Final

_ITEM: Final = "item_id:string output_index:integer"
_PART: Final = f"{_ITEM} content_index:integer"
_SUMMARY: Final = f"{_ITEM} summary_index:integer"
_DELTA: Final = "delta:string obfuscation?:string"
_STATUS: Final = "in_progress|completed|incomplete"
_CALLER: Final = "caller?:<direct>|<program>|null"
_CREATED_BY: Final = "created_by?:string|null"

EVENTS: Final = f"""
    response.created                            response:object
    response.queued                             response:object
    response.in_progress                        response:object
    response.completed                          response:object
    response.incomplete                         response:object
    response.failed                             response:object
    error                                       code?:string|null message:string param?:string|null
    keepalive

    response.output_item.added                  output_index:integer item:object
    response.output_item.done                   output_index:integer item:object

    response.content_part.added                 {_PART} part:<output_text>|<refusal>|<reasoning_text>
    response.content_part.done                  {_PART} part:<output_text>|<refusal>|<reasoning_text>
    response.output_text.delta                  {_PART} {_DELTA} logprobs?:array
    response.output_text.done                   {_PART} text:string logprobs?:array
    response.output_text.annotation.added       {_PART} annotation_index:integer
                                                annotation:<url_citation>|<file_citation>|<container_file_citation>|<file_path>
    response.refusal.delta                      {_PART} {_DELTA}
    response.refusal.done                       {_PART} refusal:string
    response.reasoning_text.delta               {_PART} {_DELTA}
    response.reasoning_text.done                {_PART} text:string

    response.reasoning_summary_part.added       {_SUMMARY} part:<summary_text>
    response.reasoning_summary_part.done        {_SUMMARY} part:<summary_text> status?:incomplete
    response.reasoning_summary_text.delta       {_SUMMARY} {_DELTA}
    response.reasoning_summary_text.done        {_SUMMARY} text:string

    response.function_call_arguments.delta      {_ITEM} {_DELTA}
    response.function_call_arguments.done       {_ITEM} arguments:string name?:string
    response.custom_tool_call_input.delta       {_ITEM} {_DELTA}
    response.custom_tool_call_input.done        {_ITEM} input:string

    response.mcp_call_arguments.delta           {_ITEM} {_DELTA}
    response.mcp_call_arguments.done            {_ITEM} arguments:string
    response.mcp_call.in_progress               {_ITEM}
    response.mcp_call.completed                 {_ITEM}
    response.mcp_call.failed                    {_ITEM}
    response.mcp_list_tools.in_progress         {_ITEM}
    response.mcp_list_tools.completed           {_ITEM}
    response.mcp_list_tools.failed              {_ITEM}

    response.code_interpreter_call_code.delta   {_ITEM} {_DELTA}
    response.code_interpreter_call_code.done    {_ITEM} code:string
    response.code_interpreter_call.in_progress  {_ITEM}
    response.code_interpreter_call.interpreting {_ITEM}
    response.code_interpreter_call.completed    {_ITEM}

    response.web_search_call.in_progress        {_ITEM}
    response.web_search_call.searching          {_ITEM}
    response.web_search_call.completed          {_ITEM}
    response.file_search_call.in_progress       {_ITEM}
    response.file_search_call.searching         {_ITEM}
    response.file_search_call.completed         {_ITEM}

    response.image_generation_call.in_progress  {_ITEM}
    response.image_generation_call.generating   {_ITEM}
    response.image_generation_call.partial_image {_ITEM} partial_image_index:integer partial_image_b64:string background?:string
                                                output_format?:string quality?:string size?:string
    response.image_generation_call.completed    {_ITEM}

    response.apply_patch_call_operation_diff.delta {_ITEM} {_DELTA}
    response.apply_patch_call_operation_diff.done {_ITEM} diff:string
    response.shell_call_command.added           output_index:integer command_index:integer command:string
    response.shell_call_command.delta           output_index:integer command_index:integer {_DELTA}
    response.shell_call_command.done            output_index:integer command_index:integer command:string
    response.shell_call_output_content.delta    {_ITEM} command_index:integer delta:<printed> obfuscation?:string
    response.shell_call_output_content.done     {_ITEM} command_index:integer output:*<output>
    response.compaction.compacting              {_ITEM}
"""

ITEMS: Final = f"""
    reasoning               id:rs_ summary:*<summary_text> content?:*<reasoning_text> encrypted_content?:string|null
                            status?:{_STATUS}
    message                 id:msg_ role:assistant status:{_STATUS} content:*<output_text>|*<refusal>
                            phase?:commentary|final_answer|null
    function_call           id:fc_ call_id:string name:string arguments:string status:{_STATUS} namespace?:string {_CALLER}
                            async?:boolean {_CREATED_BY}
    custom_tool_call        id:ctc_ call_id:string name:string input:string status?:{_STATUS} namespace?:string {_CALLER}
                            async?:boolean {_CREATED_BY}
    mcp_call                id:mcp_ name:string server_label:string arguments:string status?:{_STATUS}|calling|failed
                            output?:string|null error?:string|<mcp_protocol_error>|<mcp_tool_execution_error>|<http_error>|null
                            approval_request_id?:string|null
    mcp_list_tools          id:mcpl_ server_label:string tools:*<mcp_tool> error?:string|null
    mcp_approval_request    id:mcpr_ server_label:string name:string arguments:string
    code_interpreter_call   id:ci_ container_id:string code:string|null outputs?:*<logs>|*<image>|null
                            status:{_STATUS}|interpreting|failed
    web_search_call         id:ws_ action+:<search>|<open_page>|<find_in_page>
                            status:in_progress|searching|completed|failed|incomplete
    file_search_call        id:fs_ queries:*string results?:*<result>|null
                            status:in_progress|searching|completed|incomplete|failed
    image_generation_call   id:ig_ result+:string|null status:in_progress|completed|generating|failed
                            action?:generate|edit|auto|null background?:transparent|opaque|auto|null error?:<image_error>|null
                            output_format?:png|webp|jpeg|gif|svg|null quality?:low|medium|high|xhigh|max|auto|null
                            revised_prompt?:string|null size?:string|null svg_usage?:<svg_usage>|null
    apply_patch_call        id:apc_ call_id:string operation:<create_file>|<update_file>|<delete_file>
                            status:in_progress|completed {_CALLER} {_CREATED_BY}
    apply_patch_call_output id:apco_ call_id:string status:completed|failed output?:string|null {_CALLER} {_CREATED_BY}
    shell_call              id:sh_ call_id:string action:<commands> status:{_STATUS}
                            environment?:<local>|<container_reference>|null {_CALLER} {_CREATED_BY}
    shell_call_output       id:sho_ call_id:string output:*<output> status:{_STATUS} max_output_length?:integer|null {_CALLER}
                            {_CREATED_BY}
    local_shell_call        id:lsh_ call_id:string action:<exec> status:{_STATUS}
    local_shell_call_output id:lsho_ output:string status?:{_STATUS}|null call_id?:string
    computer_call           id:cu_ call_id:string pending_safety_checks:*<check> status:{_STATUS}
                            action?:<click>|<double_click>|<drag>|<keypress>|<move>|<screenshot>|<scroll>|<typed>|<wait>
                            actions?:*<click>|*<double_click>|*<drag>|*<keypress>|*<move>|*<screenshot>|*<scroll>|*<typed>|*<wait>
    computer_call_output    id:cuo_ call_id:string output:<screen> status:completed|incomplete|failed|in_progress
                            acknowledged_safety_checks?:*<check>|null {_CREATED_BY}
    tool_search_call        id:tsc_ arguments:any execution:server|client status:{_STATUS} call_id?:string|null {_CREATED_BY}
    tool_search_output      id:tso_ tools:*<sent> execution:server|client status:{_STATUS} call_id?:string|null {_CREATED_BY}
    program                 id:prog_ call_id:string code:string fingerprint:string
    program_output          id:progo_ call_id:string result:string status:completed|incomplete
    compaction              id:cmp_ encrypted_content:string {_CREATED_BY}
    function_call_output    id:fco_ output:string|*<sent> status:{_STATUS} call_id?:string|null name?:string|null
                            namespace?:string|null {_CALLER} {_CREATED_BY}
    custom_tool_call_output id:ctco_ call_id:string output:string|*<sent> status:{_STATUS} {_CALLER} {_CREATED_BY}
    mcp_approval_response   id:mcpra_ approval_request_id:string approve:boolean reason?:string|null
    additional_tools        id:at_ role:unknown|user|assistant|system|critic|discriminator|developer|tool tools:*<sent>
    agent_message           id:amsg_ author:string recipient:string content:*<sent>
    multi_agent_call        id:mac_ call_id:string arguments:string
                            action:spawn_agent|interrupt_agent|list_agents|send_message|followup_task|wait_agent
    multi_agent_call_output id:maco_ call_id:string output:*<output_text>
                            action:spawn_agent|interrupt_agent|list_agents|send_message|followup_task|wait_agent
"""

OBJECTS: Final = """
    sent             type:string ...?:any
    output_text      type:output_text text:string logprobs?:*<logprob>|null
                     annotations:*<url_citation>|*<file_citation>|*<container_file_citation>|*<file_path>
    refusal          type:refusal refusal:string
    reasoning_text   type:reasoning_text text:string
    summary_text     type:summary_text text:string
    url_citation     type:url_citation start_index:integer end_index:integer title:string url:string
    file_citation    type:file_citation file_id:string filename:string index:integer
    container_file_citation type:container_file_citation container_id:string file_id:string filename:string
                     start_index:integer end_index:integer
    file_path        type:file_path file_id:string index:integer
    logprob          token:string logprob:integer|number bytes?:*integer top_logprobs?:*<top_logprob>
    top_logprob      token:string logprob:integer|number bytes?:*integer

    agent            agent_name:string
    direct           type:direct
    program          type:program caller_id:string
    mcp_protocol_error type:mcp_protocol_error code:integer message:string
    mcp_tool_execution_error type:mcp_tool_execution_error content:any
    http_error       type:http_error code:integer message:string
    mcp_tool         name:string description?:string|null input_schema:any annotations?:any
    logs             type:logs logs:string
    image            type:image url:string
    search           type:search query?:string queries?:*string sources?:*<url>|*<api>
    open_page        type:open_page url?:string|null
    find_in_page     type:find_in_page url:string pattern:string
    url              type:url url:string
    api              type:api name:string
    result           attributes?:object|null file_id?:string filename?:string score?:integer|number text?:string
    image_error      type:string code?:string|null message:string param?:string|null moderation_details?:<moderation>|null
    moderation       categories:*string moderation_stage:input|output|unknown
    svg_usage        model:string input_tokens:integer output_tokens:integer reasoning_tokens:integer total_tokens:integer
    create_file      type:create_file path:string diff:string
    update_file      type:update_file path:string diff:string
    delete_file      type:delete_file path:string diff?:string
    commands         commands:*string max_output_length?:integer|null timeout_ms?:integer|null
    local            type:local skills?:*<skill>
    skill            name:string description:string path:string
    container_reference type:container_reference container_id:string
    printed          stdout?:string stderr?:string
    output           stdout:string stderr:string outcome:<exit>|<timeout> created_by?:string|null
    exit             type:exit exit_code:integer
    timeout          type:timeout
    exec             type:exec command:*string env:object timeout_ms?:integer|null user?:string|null
                     working_directory?:string|null
    check            id:string code?:string|null message?:string|null
    click            type:click x:integer y:integer keys?:*string|null button:left|right|wheel|back|forward
    double_click     type:double_click x:integer y:integer keys?:*string|null
    drag             type:drag path:*<point> keys?:*string|null
    point            x:integer y:integer
    keypress         type:keypress keys:*string
    move             type:move x:integer y:integer keys?:*string|null
    screenshot       type:screenshot
    scroll           type:scroll x:integer y:integer keys?:*string|null scroll_x:integer scroll_y:integer
    typed            type:type text:string
    wait             type:wait
    screen           type:computer_screenshot detail?:low|high|auto|original file_id?:string|null image_url?:string|null
                     prompt_cache_breakpoint?:<breakpoint>
    breakpoint       mode:explicit ttl?:30m|12h
"""
"""The objects in events and items; an object with `...` may have other fields."""

RESPONSE: Final = """
    response         id:string object:response created_at:integer|number model:string
                     status?:completed|failed|in_progress|cancelled|queued|incomplete|null output:array
                     parallel_tool_calls:boolean tool_choice:string|object tools:array error?:object|null
                     incomplete_details?:object|null usage?:object|null instructions?:string|array|null
                     metadata?:object|null temperature?:integer|number|null top_p?:integer|number|null
"""
"""The checked fields of a response; it may echo other fields of the request."""

USAGE: Final = """
    usage            input_tokens:integer input_tokens_details:object output_tokens:integer output_tokens_details:object
                     total_tokens:integer
"""

ITEM_PREFIX: Final = dict(re.findall(r"^    (\w+) +id:(\w+_)", ITEMS, re.MULTILINE))
"""The prefix of the ids of each kind of item (R7)."""

_TEXT: Final = "content_part.added (output_text.delta | output_text.annotation.added)* output_text.done content_part.done"
_REFUSAL: Final = "content_part.added refusal.delta* refusal.done content_part.done"
_REASONED: Final = "content_part.added reasoning_text.delta* reasoning_text.done content_part.done"
_SUMMARIZED: Final = (
    "reasoning_summary_part.added reasoning_summary_text.delta* reasoning_summary_text.done reasoning_summary_part.done"
)
_COMMAND: Final = "shell_call_command.added shell_call_command.delta* shell_call_command.done"
PARTS: Final = f"({_TEXT} | {_REFUSAL} | {_REASONED} | {_SUMMARIZED} | {_COMMAND})*"
"""A sequence of complete parts (R8)."""

WHOLE: Final = frozenset(
    {
        *("apply_patch_call_output", "local_shell_call_output", "computer_call_output", "tool_search_output"),
        *("program_output", "function_call_output", "custom_tool_call_output", "mcp_approval_response", "additional_tools"),
        *("agent_message", "multi_agent_call", "multi_agent_call_output"),
    }
)
"""The kinds of items that may be added with a result and any status; they have no events between `added` and `done`."""

TEXT_FIELDS: Final = {
    "function_call": "arguments",
    "mcp_call": "arguments",
    "custom_tool_call": "input",
    "code_interpreter_call": "code",
    "apply_patch_call": "diff",
}
"""The field that holds the text, by kind of item whose text has no parts (R9)."""
SERVER_MADE: Final = frozenset({"mcp_list_tools", "shell_call_output", "compaction"})
"""The kinds that only the server makes; the model writes none of their content."""

_CODE: Final = "added code_interpreter_call.in_progress code_interpreter_call_code.delta* code_interpreter_call_code.done"
_MCP: Final = "added mcp_call.in_progress (mcp_call_arguments.delta | mcp_call.in_progress)* > mcp_call_arguments.done"
"""An approved call may be in progress twice; `rules.r10_lifecycle` counts these events."""
_ARGUMENTS: Final = "added function_call_arguments.delta* function_call_arguments.done done"
_INPUT: Final = "added custom_tool_call_input.delta* custom_tool_call_input.done done"
_LIST: Final = "added mcp_list_tools.in_progress"
_IMAGE: Final = "added image_generation_call.in_progress"
_IMAGES: Final = "image_generation_call.generating image_generation_call.partial_image*"
_MESSAGE: Final = f"added ({_TEXT} | {_REFUSAL})* done"
_REASONING: Final = f"added ({_REASONED} | {_SUMMARIZED})* done"


def _searches(call: str) -> dict[str | None, str]:
    """Return the orders of events of a hosted search, by final status."""
    return {
        "completed": f"added {call}.in_progress > {call}.searching {call}.completed done",
        "failed": f"added {call}.in_progress ({call}.searching)? done",
        "incomplete": f"added {call}.in_progress done",
    }


_PATCH: Final = (
    "added (apply_patch_call_operation_diff.delta apply_patch_call_operation_diff.delta* apply_patch_call_operation_diff.done"
    " | apply_patch_call_operation_diff.done)? done"
)
_SHELL: Final = f"added ({_COMMAND})* done"
_PRINTED: Final = "added (shell_call_output_content.delta* shell_call_output_content.done)* done"
_NO_EVENTS: Final = "added done"
_ENDS: Final = ("completed", "incomplete")
ORDERS: Final[dict[str, dict[str | None, str]]] = {
    "reasoning": {"completed": _REASONING, "incomplete": _REASONING, None: _REASONING},
    "message": {"completed": _MESSAGE, "incomplete": _MESSAGE},
    "function_call": {"completed": _ARGUMENTS, "incomplete": _ARGUMENTS},
    "custom_tool_call": {"completed": _INPUT, "incomplete": _INPUT, None: _INPUT},
    "mcp_call": {
        "completed": f"{_MCP} mcp_call.completed done",
        "failed": f"{_MCP} mcp_call.failed done",
        "incomplete": f"{_MCP} done",
        None: f"{_MCP} (mcp_call.completed | mcp_call.failed)? done",
    },
    "mcp_list_tools": {None: f"{_LIST} (mcp_list_tools.completed | mcp_list_tools.failed) done"},
    "mcp_approval_request": {None: "added done"},
    "code_interpreter_call": {
        "completed": f"{_CODE} > code_interpreter_call.interpreting code_interpreter_call.completed done",
        "failed": f"{_CODE} (code_interpreter_call.interpreting)? done",
        "incomplete": f"{_CODE} done",
    },
    "web_search_call": _searches("web_search_call"),
    "file_search_call": _searches("file_search_call"),
    "image_generation_call": {
        "completed": f"{_IMAGE} > {_IMAGES} image_generation_call.completed done",
        "failed": f"{_IMAGE} ({_IMAGES})? done",
    },
    "apply_patch_call": {"completed": _PATCH, "in_progress": _PATCH},
    "shell_call": dict.fromkeys(_ENDS, _SHELL),
    "shell_call_output": dict.fromkeys(_ENDS, _PRINTED),
    "local_shell_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "computer_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "tool_search_call": dict.fromkeys(_ENDS, _NO_EVENTS),
    "program": {None: _NO_EVENTS},
    "compaction": {None: "added > compaction.compacting? done"},
    **{kind: dict.fromkeys((None, "in_progress", "completed", "incomplete", "failed"), _NO_EVENTS) for kind in sorted(WHOLE)},
}
"""The order of events by kind of item and final status, which is None for an item without one.

An expression has event names without the leading `response.`; `added` and `done` stand for `response.output_item.added` and
`.done`. `>` precedes the events that the tool of a hosted call causes: the first starts the tool, and the last before `done`
completes it.
"""

MORE_EVENTS: Final = {
    "mcp_list_tools": "mcp_list_tools.completed mcp_list_tools.failed",
    "shell_call_output": "shell_call_output_content.delta shell_call_output_content.done",
}
"""The events that a tool causes which does not start with an event, by kind of item."""
