"""A tool parser for vLLM that raises an error if the model writes a certain word (`--tool-parser-plugin failing_parser.py`)."""

from __future__ import annotations

from typing import Any

from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

WORD = "thirteen"


@ToolParserManager.register_module("failing")
class FailingParser(Hermes2ProToolParser):  # type: ignore[misc]  # vLLM's classes have no types here
    """The parser of Hermes, which fails on one word."""

    def extract_tool_calls_streaming(self, *arguments: Any, **named: Any) -> Any:
        """Parse a chunk of text."""
        if any(WORD in argument for argument in (*arguments, *named.values()) if isinstance(argument, str)):
            raise ValueError("what only the operator should read")
        return super().extract_tool_calls_streaming(*arguments, **named)
