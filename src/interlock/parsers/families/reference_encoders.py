"""Encodes items as a model of a family would write them.

The encoders follow the models' chat templates and share nothing with the parsers' marker tables, so each tests the other.
Recordings and the embedded engine use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

import orjson
from attrs import evolve, frozen

from interlock.events.json import is_array, is_object


@frozen
class WrittenItem:
    """An item that a model writes; the text of a call is its arguments as a JSON object."""

    kind: Literal["reasoning", "message", "call"]
    text: str
    name: str = ""


def _plain(value: object) -> str:
    """Return a string as it is, and any other value as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


@frozen
class Template:
    """How a family writes consecutive calls.

    Args:
        call: The format of a call, with the fields `name`, `arguments` and `index`.
        pair: The format of an argument, with the fields `key`, `value`, `string` and `type`; None if the arguments are JSON.
        value: Encodes the value of an argument.
        glue: The text between two arguments.
        between: The text between two calls.
        section: The text before the first call, and the text after the last.
    """

    call: str
    pair: str | None = None
    value: Callable[[object], str] = _plain
    glue: str = ""
    between: str = ""
    section: tuple[str, str] = ("", "")


_QWEN: Final = Template(
    call="<tool_call>\n<function=%(name)s>\n%(arguments)s</function>\n</tool_call>",
    pair="<parameter=%(key)s>\n%(value)s\n</parameter>\n",
    between="\n",
)
_HERMES: Final = Template('<tool_call>\n{"name": "%(name)s", "arguments": %(arguments)s}\n</tool_call>', between="\n")
_GLM_PAIR: Final = "<arg_key>%(key)s</arg_key>\n<arg_value>%(value)s</arg_value>\n"
_GLM45: Final = Template("<tool_call>%(name)s\n%(arguments)s</tool_call>", _GLM_PAIR, between="\n")
_GLM47: Final = Template("<tool_call>%(name)s%(arguments)s</tool_call>", _GLM_PAIR.replace("\n", ""))


def _list_template(begin: str, end: str) -> Template:
    return Template('{"name": "%(name)s", "arguments": %(arguments)s}', between=", ", section=(begin, end))


def _invoke_template(begin: str, end: str) -> Template:
    call, pair = '<invoke name="%(name)s">\n%(arguments)s</invoke>\n', '<parameter name="%(key)s">%(value)s</parameter>\n'
    return Template(call, pair, section=(begin, end))


_LLAMA: Final = Template('{"name": "%(name)s", "parameters": %(arguments)s}', between="; ")
_COHERE: Final = Template(
    '{"tool_call_id": "%(index)d", "tool_name": "%(name)s", "parameters": %(arguments)s}',
    between=",\n    ",
    section=("<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"),
)


def _dsml(section: str, mark: str = "｜DSML｜") -> Template:
    return Template(
        call=f'<{mark}invoke name="%(name)s">\n%(arguments)s</{mark}invoke>\n',
        pair=f'<{mark}parameter name="%(key)s" string="%(string)s">%(value)s</{mark}parameter>\n',
        section=(f"<{mark}{section}>\n", f"</{mark}{section}>"),
    )


def _gemma(value: object, quote: str) -> str:
    """Encode a value, with `quote` around strings."""
    if is_object(value):
        return f"{{{','.join(f'{key}:{_gemma(each, quote)}' for key, each in value.items())}}}"
    if is_array(value):
        return f"[{','.join(_gemma(each, quote) for each in value)}]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else _plain(value)


def _elements(value: object) -> str:
    """Encode a value as nested elements whose tags are the keys."""
    if is_object(value):
        return "".join(f"{_M}<{key}>{_elements(each)}{_M}</{key}>" for key, each in value.items())
    if is_array(value):
        return "".join(f"{_M}<item>{_elements(each)}{_M}</item>" for each in value)
    return _plain(value)


_M: Final = "]<]minimax[>["
_PYTHON: Final = Template("%(name)s(%(arguments)s)", "%(key)s=%(value)s", value=repr, glue=", ", between=", ", section=("[", "]"))

TEMPLATES: Final[Mapping[str, Template]] = {
    "qwen3_coder": _QWEN,
    "qwen3_xml": _QWEN,
    "step3p5": _QWEN,
    "step5": _QWEN,
    "seed_oss": evolve(_QWEN, call="<seed:tool_call>\n<function=%(name)s>\n%(arguments)s</function>\n</seed:tool_call>"),
    "step3": Template(
        call="<｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="%(name)s">%(arguments)s</steptml:invoke><｜tool_call_end｜>',
        pair='<steptml:parameter name="%(key)s">%(value)s</steptml:parameter>',
        section=("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
    ),
    "kimi_k3": Template(
        call='<|open|>call tool="%(name)s" index="%(index)d"<|sep|>%(arguments)s<|close|>call<|sep|>',
        pair='<|open|>argument key="%(key)s" type="%(type)s"<|sep|>%(value)s<|close|>argument<|sep|>',
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    "hermes": _HERMES,
    "qwen3_json": _HERMES,
    "glm45": _GLM45,
    "glm47": _GLM47,
    "minimax_m2": _invoke_template("<minimax:tool_call>\n", "</minimax:tool_call>"),
    "deepseek_v32": _dsml("function_calls"),
    "deepseek_v4": _dsml("tool_calls"),
    "deepseek_v41": _dsml("calls", "｜DSML｜ "),
    "gigachat35": _dsml("tool_calls", "｜GCML｜"),
    "kimi_k2": Template(
        "<|tool_call_begin|>functions.%(name)s:%(index)d<|tool_call_argument_begin|>%(arguments)s<|tool_call_end|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
    "deepseek_v3": Template(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(name)s\n```json\n%(arguments)s\n```<｜tool▁call▁end｜>",
        between="\n",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "deepseek_v31": Template(
        "<｜tool▁call▁begin｜>%(name)s<｜tool▁sep｜>%(arguments)s<｜tool▁call▁end｜>",
        section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ),
    "mistral": Template("[TOOL_CALLS]%(name)s[ARGS]%(arguments)s"),
    "functionary_v31": Template("<function=%(name)s>%(arguments)s</function>"),
    "mirothinker": Template(
        "<server_name>tools</server_name>\n<tool_name>%(name)s</tool_name>\n<arguments>\n%(arguments)s\n</arguments>",
        between="\n",
        section=("<use_mcp_tool>\n", "\n</use_mcp_tool>"),
    ),
    "mimo": Template(
        "<tool_call>\n<function=%(name)s>\n%(arguments)s</function>\n</tool_call>", "<parameter=%(key)s>%(value)s</parameter>\n"
    ),
    "granite4": _HERMES,
    "ernie45": _HERMES,
    "longcat": Template(
        '<longcat_tool_call>\n{"name": "%(name)s", "arguments": %(arguments)s}\n</longcat_tool_call>', between="\n"
    ),
    "internlm": Template(
        '<|action_start|><|plugin|>\n{"name": "%(name)s", "parameters": %(arguments)s}<|action_end|>', between="\n"
    ),
    "granite-20b-fc": Template('<function_call> {"name": "%(name)s", "arguments": %(arguments)s}', between=" "),
    "gigachat3": Template('<|function_call|>{"name": "%(name)s", "arguments": %(arguments)s}'),
    "llama3_json": _LLAMA,
    "llama4_json": _LLAMA,
    "granite": _list_template("<|tool_call|>[", "]"),
    "jamba": _list_template("<tool_calls>[\n    ", "\n]</tool_calls>"),
    **dict.fromkeys(("hunyuan_a13b", "apriel"), _list_template("<tool_calls>[", "]</tool_calls>")),
    "nemotron_json": _list_template("<TOOLCALL>[", "]</TOOLCALL>"),
    "phi4_mini_json": _list_template("functools[", "]"),
    "cohere_command3": _COHERE,
    "cohere_command4": _COHERE,
    "apertus": Template('{"%(name)s": %(arguments)s}', between=", ", section=("<|tools_prefix|>[", "]<|tools_suffix|>")),
    "xlam": _list_template("[", "]"),
    "ling3": _GLM47,
    "poolside_v1": _GLM45,
    "spark25": Template("<|tool_call|>\n%(name)s%(arguments)s\n<|/tool_call|>", _GLM_PAIR.replace("\n", ""), between="\n"),
    "hy_v3": Template(
        "<tool_call>%(name)s<tool_sep>%(arguments)s\n</tool_call>",
        "\n<arg_key>%(key)s</arg_key>\n<arg_value>%(value)s</arg_value>",
        between="\n",
        section=("<tool_calls>\n", "\n</tool_calls>"),
    ),
    "hy_v4": evolve(_GLM47, section=("<tool_calls>", "</tool_calls>")),
    "k2_horizon": Template(
        "<ifm|tool_call>%(name)s%(arguments)s</ifm|tool_call>",
        "<ifm|arg_key>%(key)s</ifm|arg_key><ifm|arg_value>%(value)s</ifm|arg_value>",
        section=("<ifm|tool_calls>", "</ifm|tool_calls>"),
    ),
    "minicpm5": Template(
        '<function name="%(name)s">%(arguments)s</function>', '<param name="%(key)s">%(value)s</param>', between="\n"
    ),
    "dots": _invoke_template("<dots_function_call>\n", "</dots_function_call>"),
    "plamo3": Template(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>%(name)s<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>%(arguments)s"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        section=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    ),
    "pythonic": _PYTHON,
    "llama4_pythonic": evolve(_PYTHON, section=("<|python_start|>[", "]<|python_end|>")),
    "lfm2": evolve(_PYTHON, section=("<|tool_call_start|>[", "]<|tool_call_end|>")),
    "olmo3": evolve(_PYTHON, between="\n", section=("<function_calls>", "</function_calls>")),
    "gemma4": Template(
        "<|tool_call>call:%(name)s{%(arguments)s}<tool_call|>",
        "%(key)s:%(value)s",
        value=partial(_gemma, quote='<|"|>'),
        glue=",",
    ),
    "functiongemma": Template(
        "<start_function_call>call:%(name)s{%(arguments)s}<end_function_call>",
        "%(key)s:%(value)s",
        value=partial(_gemma, quote="<escape>"),
        glue=",",
    ),
    "minimax_m3": Template(
        f'{_M}<invoke name="%(name)s">\n%(arguments)s{_M}</invoke>\n',
        f"{_M}<%(key)s>%(value)s{_M}</%(key)s>\n",
        value=_elements,
        section=(f"{_M}<tool_call>\n", f"{_M}</tool_call>"),
    ),
}
"""How each family writes calls, keyed by the name for `--tool-call-parser`."""

_THINKS: Final[Mapping[str, tuple[str, str]]] = {
    "mistral": ("[THINK]", "[/THINK]"),
    "bedrock_gpt_oss": ("<reasoning>", "</reasoning>"),
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "kimi_k3": ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "k2_horizon": ("<ifm|think>", "</ifm|think>"),
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    "hunyuan_a13b": ("<think>\n", "\n</think>\n<answer>\n"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    **dict.fromkeys(("cohere_command3", "cohere_command4"), ("<|START_THINKING|>", "<|END_THINKING|>")),
    "gemma4": ("<|channel>thought\n", "\n<channel|>"),
    "apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "apriel": ("Here are my reasoning steps:\n", "\n[BEGIN FINAL RESPONSE]\n"),
    **dict.fromkeys(
        ("deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "gigachat35", "kimi_k2"), ("<think>", "</think>")
    ),
}
_LINES: Final = ("<think>\n", "\n</think>\n\n")
"""How families missing from `_THINKS` write reasoning: with each marker on a separate line."""


_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    dict: "object",
    list: "array",
}
"""The type names that Kimi K3 writes."""


def encode(items: Sequence[WrittenItem], tool_parser: str, reasoning_parser: str | None = None, *, thinking: bool = True) -> str:
    """Return the text of a turn.

    Args:
        items: The items in order; only the first may be reasoning.
        tool_parser: A name for `--tool-call-parser`.
        reasoning_parser: A name for `--reasoning-parser`; None omits reasoning.
        thinking: Whether the prompt ends with the marker that begins reasoning.

    Raises:
        KeyError: The `tool_parser` is unknown.
    """
    return "".join(_parts(items, TEMPLATES[tool_parser], reasoning_parser, thinking=thinking))


def _parts(items: Sequence[WrittenItem], template: Template, reasoning_parser: str | None, *, thinking: bool) -> Iterator[str]:
    begin, end = _THINKS.get(reasoning_parser or "", _LINES)
    thought = next((each.text for each in items if each.kind == "reasoning"), "")
    if reasoning_parser is not None and (thought or thinking):
        yield f"{'' if thinking else begin}{thought}{end}"
    calls: list[str] = []
    for each in [*items, WrittenItem("message", "")]:
        if each.kind == "call":
            calls.append(_call(each, template, len(calls)))
        elif each.kind == "message":
            yield f"{template.section[0]}{template.between.join(calls)}{template.section[1]}" if calls else ""
            calls = []
            yield each.text


def _call(item: WrittenItem, template: Template, index: int) -> str:
    arguments = item.text
    if template.pair is not None:
        values: dict[str, object] = orjson.loads(arguments)
        arguments = template.glue.join(template.pair % _pair(key, value, template) for key, value in values.items())
    return template.call % {"name": item.name, "arguments": arguments, "index": index}


def _pair(key: str, value: object, template: Template) -> dict[str, str]:
    string = f"{isinstance(value, str)}".lower()
    return {"key": key, "value": template.value(value), "string": string, "type": _TYPES[type(value)]}
