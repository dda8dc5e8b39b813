"""The fields of every event and item of the API, written by hand for the oracle (rule R14 of docs/rules.md).

A row has a type and its fields as `name:type`. `?` marks an optional field, `+` a field that is optional until the item is done,
and `|` separates types. `<name>` is an object of `OBJECTS`, `*` precedes the type of a list's entries, and any word that is not a
JSON type or `any` is a literal string. Rows of events and items omit `type` and `agent`; rows of events also omit `stream_id` and
`sequence_number`, which R2 requires.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final = """
    response.created                            response:object
    response.queued                             response:object
    response.in_progress                        response:object
    response.completed                          response:object
    response.incomplete                         response:object
    response.failed                             response:object
    error                                       code?:string|null message:string param?:string|null

    response.output_item.added                  output_index:integer item:object
    response.output_item.done                   output_index:integer item:object

    response.content_part.added                 item_id:string output_index:integer content_index:integer
                                                part:<output_text>|<refusal>|<reasoning_text>
    response.content_part.done                  item_id:string output_index:integer content_index:integer
                                                part:<output_text>|<refusal>|<reasoning_text>
    response.output_text.delta                  item_id:string output_index:integer content_index:integer delta:string
                                                logprobs?:array obfuscation?:string
    response.output_text.done                   item_id:string output_index:integer content_index:integer text:string
                                                logprobs?:array
    response.output_text.annotation.added       item_id:string output_index:integer content_index:integer
                                                annotation_index:integer
                                                annotation:<url_citation>|<file_citation>|<container_file_citation>|<file_path>
    response.refusal.delta                      item_id:string output_index:integer content_index:integer delta:string
                                                obfuscation?:string
    response.refusal.done                       item_id:string output_index:integer content_index:integer refusal:string
    response.reasoning_text.delta               item_id:string output_index:integer content_index:integer delta:string
                                                obfuscation?:string
    response.reasoning_text.done                item_id:string output_index:integer content_index:integer text:string

    response.reasoning_summary_part.added       item_id:string output_index:integer summary_index:integer part:<summary_text>
    response.reasoning_summary_part.done        item_id:string output_index:integer summary_index:integer part:<summary_text>
                                                status?:incomplete
    response.reasoning_summary_text.delta       item_id:string output_index:integer summary_index:integer delta:string
                                                obfuscation?:string
    response.reasoning_summary_text.done        item_id:string output_index:integer summary_index:integer text:string

    response.function_call_arguments.delta      item_id:string output_index:integer delta:string obfuscation?:string
    response.function_call_arguments.done       item_id:string output_index:integer arguments:string name?:string
    response.custom_tool_call_input.delta       item_id:string output_index:integer delta:string obfuscation?:string
    response.custom_tool_call_input.done        item_id:string output_index:integer input:string

    response.mcp_call_arguments.delta           item_id:string output_index:integer delta:string obfuscation?:string
    response.mcp_call_arguments.done            item_id:string output_index:integer arguments:string
    response.mcp_call.in_progress               item_id:string output_index:integer
    response.mcp_call.completed                 item_id:string output_index:integer
    response.mcp_call.failed                    item_id:string output_index:integer
    response.mcp_list_tools.in_progress         item_id:string output_index:integer
    response.mcp_list_tools.completed           item_id:string output_index:integer
    response.mcp_list_tools.failed              item_id:string output_index:integer

    response.code_interpreter_call_code.delta   item_id:string output_index:integer delta:string obfuscation?:string
    response.code_interpreter_call_code.done    item_id:string output_index:integer code:string
    response.code_interpreter_call.in_progress  item_id:string output_index:integer
    response.code_interpreter_call.interpreting item_id:string output_index:integer
    response.code_interpreter_call.completed    item_id:string output_index:integer

    response.web_search_call.in_progress        item_id:string output_index:integer
    response.web_search_call.searching          item_id:string output_index:integer
    response.web_search_call.completed          item_id:string output_index:integer
    response.file_search_call.in_progress       item_id:string output_index:integer
    response.file_search_call.searching         item_id:string output_index:integer
    response.file_search_call.completed         item_id:string output_index:integer

    response.image_generation_call.in_progress  item_id:string output_index:integer
    response.image_generation_call.generating   item_id:string output_index:integer
    response.image_generation_call.partial_image item_id:string output_index:integer partial_image_index:integer
                                                partial_image_b64:string background?:string output_format?:string
                                                quality?:string size?:string
    response.image_generation_call.completed    item_id:string output_index:integer

    response.apply_patch_call_operation_diff.delta item_id:string output_index:integer delta:string obfuscation?:string
    response.apply_patch_call_operation_diff.done item_id:string output_index:integer diff:string
    response.shell_call_command.added           output_index:integer command_index:integer command:string
    response.shell_call_command.delta           output_index:integer command_index:integer delta:string obfuscation?:string
    response.shell_call_command.done            output_index:integer command_index:integer command:string
    response.shell_call_output_content.delta    item_id:string output_index:integer command_index:integer delta:<printed>
                                                obfuscation?:string
    response.shell_call_output_content.done     item_id:string output_index:integer command_index:integer output:*<output>
    response.compaction.compacting              item_id:string output_index:integer
"""

ITEMS: Final = """
    reasoning               id:string summary:*<summary_text> content?:*<reasoning_text> encrypted_content?:string|null
                            status?:in_progress|completed|incomplete
    message                 id:string role:assistant status:in_progress|completed|incomplete content:*<output_text>|*<refusal>
                            phase?:commentary|final_answer|null
    function_call           id:string call_id:string name:string arguments:string status:in_progress|completed|incomplete
                            namespace?:string caller?:<direct>|<program>|null async?:boolean created_by?:string|null
    custom_tool_call        id:string call_id:string name:string input:string status?:in_progress|completed|incomplete
                            namespace?:string caller?:<direct>|<program>|null async?:boolean created_by?:string|null
    mcp_call                id:string name:string server_label:string arguments:string
                            status:in_progress|completed|incomplete|calling|failed output?:string|null
                            error?:string|<mcp_protocol_error>|<mcp_tool_execution_error>|<http_error>|null
                            approval_request_id?:string|null
    mcp_list_tools          id:string server_label:string tools:*<mcp_tool> error?:string|null
    mcp_approval_request    id:string server_label:string name:string arguments:string
    code_interpreter_call   id:string container_id:string code:string|null outputs?:*<logs>|*<image>|null
                            status:in_progress|completed|incomplete|interpreting|failed
    web_search_call         id:string action+:<search>|<open_page>|<find_in_page>
                            status:in_progress|searching|completed|failed|incomplete
    file_search_call        id:string queries:*string results?:*<result>|null
                            status:in_progress|searching|completed|incomplete|failed
    image_generation_call   id:string result+:string|null status:in_progress|completed|generating|failed
                            action?:generate|edit|auto|null background?:transparent|opaque|auto|null error?:<image_error>|null
                            output_format?:png|webp|jpeg|gif|svg|null quality?:low|medium|high|xhigh|max|auto|null
                            revised_prompt?:string|null size?:string|null svg_usage?:<svg_usage>|null
    apply_patch_call        id:string call_id:string operation:<create_file>|<update_file>|<delete_file>
                            status:in_progress|completed caller?:<direct>|<program>|null created_by?:string|null
    apply_patch_call_output id:string call_id:string status:completed|failed output?:string|null
                            caller?:<direct>|<program>|null created_by?:string|null
    shell_call              id:string call_id:string action:<commands> status:in_progress|completed|incomplete
                            environment?:<local>|<container_reference>|null caller?:<direct>|<program>|null
                            created_by?:string|null
    shell_call_output       id:string call_id:string output:*<output> status:in_progress|completed|incomplete
                            max_output_length?:integer|null caller?:<direct>|<program>|null created_by?:string|null
    local_shell_call        id:string call_id:string action:<exec> status:in_progress|completed|incomplete
    local_shell_call_output id:string output:string status?:in_progress|completed|incomplete|null call_id?:string
    computer_call           id:string call_id:string pending_safety_checks:*<check> status:in_progress|completed|incomplete
                            action?:<click>|<double_click>|<drag>|<keypress>|<move>|<screenshot>|<scroll>|<typed>|<wait>
                            actions?:*<click>|*<double_click>|*<drag>|*<keypress>|*<move>|*<screenshot>|*<scroll>|*<typed>|*<wait>
    computer_call_output    id:string call_id:string output:<screen> status:completed|incomplete|failed|in_progress
                            acknowledged_safety_checks?:*<check>|null created_by?:string|null
    tool_search_call        id:string arguments:any execution:server|client status:in_progress|completed|incomplete
                            call_id?:string|null created_by?:string|null
    tool_search_output      id:string tools:*<sent> execution:server|client status:in_progress|completed|incomplete
                            call_id?:string|null created_by?:string|null
    program                 id:string call_id:string code:string fingerprint:string
    program_output          id:string call_id:string result:string status:completed|incomplete
    compaction              id:string encrypted_content:string created_by?:string|null
    function_call_output    id:string output:string|*<sent> status:in_progress|completed|incomplete call_id?:string|null
                            name?:string|null namespace?:string|null caller?:<direct>|<program>|null created_by?:string|null
    custom_tool_call_output id:string call_id:string output:string|*<sent> status:in_progress|completed|incomplete
                            caller?:<direct>|<program>|null created_by?:string|null
    mcp_approval_response   id:string approval_request_id:string approve:boolean reason?:string|null
    additional_tools        id:string role:unknown|user|assistant|system|critic|discriminator|developer|tool tools:*<sent>
    agent_message           id:string author:string recipient:string content:*<sent>
    multi_agent_call        id:string call_id:string arguments:string
                            action:spawn_agent|interrupt_agent|list_agents|send_message|followup_task|wait_agent
    multi_agent_call_output id:string call_id:string output:*<output_text>
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

ITEM_PREFIX: Final = {
    "reasoning": "rs_",
    "message": "msg_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "mcp_call": "mcp_",
    "mcp_list_tools": "mcpl_",
    "mcp_approval_request": "mcpr_",
    "code_interpreter_call": "ci_",
    "web_search_call": "ws_",
    "file_search_call": "fs_",
    "image_generation_call": "ig_",
    "apply_patch_call": "apc_",
    "apply_patch_call_output": "apco_",
    "shell_call": "sh_",
    "shell_call_output": "sho_",
    "local_shell_call": "lsh_",
    "local_shell_call_output": "lsho_",
    "computer_call": "cu_",
    "computer_call_output": "cuo_",
    "tool_search_call": "tsc_",
    "tool_search_output": "tso_",
    "program": "prog_",
    "program_output": "progo_",
    "compaction": "cmp_",
    "function_call_output": "fco_",
    "custom_tool_call_output": "ctco_",
    "mcp_approval_response": "mcpra_",
    "additional_tools": "at_",
    "agent_message": "amsg_",
    "multi_agent_call": "mac_",
    "multi_agent_call_output": "maco_",
}
"""The prefix of the ids of each kind of item (R7)."""
