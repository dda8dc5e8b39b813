"""(being written)"""
from typing import Literal, TypeAlias
ItemKind: TypeAlias = Literal["reasoning","message","function_call","custom_tool_call","mcp_call","mcp_list_tools","code_interpreter_call","web_search_call","file_search_call","image_generation_call"]
