"""The fields of every event, item and part of the API, by hand, as the oracle expects them (rule R14).

Each line is a type, then its fields as `name:type`; `?` marks a field that may be missing, `+` one that may be missing before
the item is done, `|` separates types. `type` is a field of all of them and is left out, as is `sequence_number` of the events
(rule R2 wants it).
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
    error                                       code:string|null message:string param:string|null

    response.output_item.added                  output_index:integer item:object
    response.output_item.done                   output_index:integer item:object

    response.content_part.added                 item_id:string output_index:integer content_index:integer part:object
    response.content_part.done                  item_id:string output_index:integer content_index:integer part:object
    response.output_text.delta                  item_id:string output_index:integer content_index:integer delta:string
                                                logprobs?:array obfuscation?:string
    response.output_text.done                   item_id:string output_index:integer content_index:integer text:string
                                                logprobs?:array
    response.output_text.annotation.added       item_id:string output_index:integer content_index:integer
                                                annotation_index:integer annotation:object
    response.refusal.delta                      item_id:string output_index:integer content_index:integer delta:string
                                                obfuscation?:string
    response.refusal.done                       item_id:string output_index:integer content_index:integer refusal:string
    response.reasoning_text.delta               item_id:string output_index:integer content_index:integer delta:string
                                                obfuscation?:string
    response.reasoning_text.done                item_id:string output_index:integer content_index:integer text:string

    response.reasoning_summary_part.added       item_id:string output_index:integer summary_index:integer part:object
    response.reasoning_summary_part.done        item_id:string output_index:integer summary_index:integer part:object
                                                status?:string
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
    response.shell_call_output_content.delta    item_id:string output_index:integer command_index:integer delta:object
                                                obfuscation?:string
    response.shell_call_output_content.done     item_id:string output_index:integer command_index:integer output:array
    response.compaction.compacting              item_id:string output_index:integer
"""

ITEMS: Final = """
    reasoning               id:string summary:array content?:array encrypted_content?:string|null status?:string
    message                 id:string role:string status:string content:array phase?:string|null
    function_call           id:string call_id:string name:string arguments:string status:string namespace?:string
                            caller?:object|null async?:boolean
    custom_tool_call        id:string call_id:string name:string input:string status?:string namespace?:string
                            caller?:object|null async?:boolean
    mcp_call                id:string name:string server_label:string arguments:string status:string
                            output?:string|null error?:object|null approval_request_id?:string|null
    mcp_list_tools          id:string server_label:string tools:array error?:string|null
    mcp_approval_request    id:string server_label:string name:string arguments:string
    code_interpreter_call   id:string container_id:string code:string|null outputs?:array|null status:string
    web_search_call         id:string action+:object status:string
    file_search_call        id:string queries:array results?:array|null status:string
    image_generation_call   id:string result+:string|null status:string action?:string background?:string
                            error?:object|null output_format?:string quality?:string
                            revised_prompt?:string|null size?:string svg_usage?:object|null
    apply_patch_call        id:string call_id:string operation:object status:string caller?:object|null created_by?:string|null
    apply_patch_call_output id:string call_id:string status:string output?:string|null caller?:object|null
                            created_by?:string|null
    shell_call              id:string call_id:string action:object status:string environment?:object|null caller?:object|null
                            created_by?:string|null
    shell_call_output       id:string call_id:string output:array status:string max_output_length?:integer|null
                            caller?:object|null created_by?:string|null
    local_shell_call        id:string call_id:string action:object status:string
    local_shell_call_output id:string output:string status?:string
    computer_call           id:string call_id:string pending_safety_checks:array status:string action?:object actions?:array
    computer_call_output    id:string call_id:string output:object status:string acknowledged_safety_checks?:array
                            created_by?:string|null
    tool_search_call        id:string arguments:object execution:string status:string call_id?:string|null
                            created_by?:string|null
    tool_search_output      id:string tools:array execution:string status:string call_id?:string|null created_by?:string|null
    program                 id:string call_id:string code:string fingerprint:string
    program_output          id:string call_id:string result:string status:string
    compaction              id:string encrypted_content:string created_by?:string|null
    function_call_output    id:string output:string|array status:string call_id?:string name?:string namespace?:string
                            caller?:object|null created_by?:string|null
    custom_tool_call_output id:string call_id:string output:string|array status:string caller?:object|null
                            created_by?:string|null
    mcp_approval_response   id:string approval_request_id:string approve:boolean reason?:string
    additional_tools        id:string role:string tools:array
    agent_message           id:string author:string recipient:string content:array
    multi_agent_call        id:string call_id:string action:string arguments:string
    multi_agent_call_output id:string call_id:string action:string output:array
"""

PARTS: Final = """
    output_text      text:string annotations:array logprobs?:array
    refusal          refusal:string
    reasoning_text   text:string
    summary_text     text:string
"""

ACTIONS: Final = """
    search           query:string queries?:array sources?:array
    open_page        url:string|null
    find_in_page     url:string pattern:string
"""

RESPONSE: Final = """
    response         id:string object:string created_at:integer|number model:string status:string output:array
                     parallel_tool_calls:boolean tool_choice:string|object tools:array error?:object|null
                     incomplete_details?:object|null usage?:object|null instructions?:string|array|null
                     metadata?:object|null temperature?:integer|number|null top_p?:integer|number|null
"""
"""Of a response only these are looked at: what else it echoes of the request is not the stream's business."""

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
"""What the id of an item of each kind begins with (rule R7)."""
