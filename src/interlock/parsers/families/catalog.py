"""The known families, by the names of vLLM's flags `--tool-call-parser` and `--reasoning-parser`.

Each family is a table of markers. docs/library/families.md shows each format, and how to add one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Final

from attrs import evolve

from interlock.parsers.families.family import Family, ReasoningSyntax, Syntax
from interlock.parsers.families.framing import Trigger
from interlock.parsers.families.literals import ELEMENTS, FUNCTION_GEMMA, GEMMA, PYTHON
from interlock.parsers.families.patterns import ANY, SPACE

_T: Final = Trigger

QWEN3_CODER: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<tool_call>",),
        _T.INVOKE: ("<function=",),
        _T.BARE: ("<function=",),
        _T.KEYS: (">",),
        _T.KEY: ("<parameter=",),
        _T.VALUE: (">\n", ">", "\n"),
        _T.UNVALUE: ("\n</parameter>", "</parameter>"),
        _T.UNCALL: ("</function>",),
        _T.UNSECTION: ("</tool_call>",),
    },
)

MIMO: Final = evolve(QWEN3_CODER, markers={**QWEN3_CODER.markers, _T.VALUE: (">", "\n"), _T.UNVALUE: ("</parameter>",)})

SEED_OSS: Final = evolve(
    QWEN3_CODER,
    markers={**QWEN3_CODER.markers, _T.SECTION: ("<seed:tool_call>",), _T.UNSECTION: ("</seed:tool_call>",)},
)

STEP3: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<｜tool_calls_begin｜>",),
        _T.INVOKE: ("<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=",),
        _T.BARE: ("<steptml:invoke name=",),
        _T.KEYS: (">",),
        _T.KEY: ("<steptml:parameter name=",),
        _T.VALUE: (">",),
        _T.UNVALUE: ("</steptml:parameter>",),
        _T.UNCALL: ("</steptml:invoke>", "<｜tool_call_end｜>"),
        _T.UNSECTION: ("<｜tool_calls_end｜>",),
    },
    own_lines=False,
)

_XTML_ANSWERS: Final = (("<|open|>response<|sep|>",), ("<|close|>response<|sep|>", "<|close|>message<|sep|>"))

KIMI_K3: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<|open|>tools<|sep|>",),
        _T.INVOKE: ("<|open|>call tool=",),
        _T.BARE: ("<|open|>call tool=",),
        _T.KEYS: ("<|sep|>",),
        _T.KEY: ("<|open|>argument key=",),
        _T.VALUE: ("<|sep|>",),
        _T.UNVALUE: ("<|close|>argument<|sep|>",),
        _T.UNCALL: ("<|close|>call<|sep|>",),
        _T.UNSECTION: ("<|close|>tools<|sep|>",),
        _T.ANSWER: _XTML_ANSWERS[0],
        _T.UNANSWER: _XTML_ANSWERS[1],
        _T.JSON: tuple(f"<|open|>json{type_}<|sep|>" for type_ in (' type="object"', "")),
        _T.SHUT: ("<|close|>json<|sep|>",),
    },
    name=re.compile(r"""\s*["']?(?P<name>[\w.:/$-]+)["']?(?:\s+index=["']?\d*["']?)?\s*"""),
    partial_name=re.compile(r"""\s*["']?[\w.:/$-]*["']?(?:\s+[index]{0,5}=?["']?\d*["']?)?\s*"""),
    key=re.compile(r"""\s*["']?(?P<key>[^"'<>\s][^"'<>\n]*?)["']?(?:\s+type=["'](?P<string>\w+)["'])?\s*"""),
    own_lines=False,
    escaped_keys=True,
)

HERMES: Final = Syntax(
    "envelope",
    {_T.CALL: ("<tool_call>",), _T.SHUT: ("}",), _T.UNCALL: ("</tool_call>",)},
)


def _envelope_in(begin: str, end: str) -> Syntax:
    """Return the syntax of envelopes between two markers."""
    return evolve(HERMES, markers={**HERMES.markers, _T.CALL: (begin,), _T.UNCALL: (end,)})


def _ends_of_list(*ends: str) -> tuple[str, ...]:
    """Return the end of a list, alone and before each of these, with or without a comma and white space."""
    return tuple(f"{comma}]{end and SPACE}{end}" for comma in ("", f",{SPACE}") for end in ("", *filter(None, ends)))


def _list_of(section: str, end: str = "") -> Syntax:
    """Return the syntax of a JSON list of envelopes between two markers; `end` is empty if the family has no second one."""
    markers: dict[Trigger, tuple[str, ...]] = {
        _T.SECTION: (section,),
        _T.LIST: ("[",),
        _T.NEXT: (",",),
        _T.UNLIST: _ends_of_list(end),
        _T.SHUT: ("}",),
    }
    return Syntax("envelope", markers | ({_T.UNSECTION: (end,)} if end else {}))


GRANITE: Final = evolve(_list_of("<|tool_call|>"), markers={**_list_of("").markers, _T.SECTION: ("<|tool_call|>", "<tool_call>")})
JAMBA: Final = _list_of("<tool_calls>", "</tool_calls>")
PHI4_MINI: Final = _list_of("functools")
COHERE_COMMAND: Final = _list_of("<|START_ACTION|>", "<|END_ACTION|>")
NEMOTRON_JSON: Final = _list_of("<TOOLCALL>", "</TOOLCALL>")

APERTUS: Final = evolve(
    _list_of("<|tools_prefix|>", "<|tools_suffix|>"),
    style="json",
    markers={**_list_of("<|tools_prefix|>", "<|tools_suffix|>").markers, _T.BARE: ("[",), _T.JSON: (":",)},
    name=re.compile(r'\s*\{\s*"(?P<name>[\w.:/$-]+)"\s*'),
    partial_name=re.compile(r'\s*(?:\{\s*(?:"[\w.:/$-]*(?:"\s*)?)?)?'),
)

XLAM: Final = Syntax(
    "envelope",
    {
        _T.BARE: tuple(
            f"{begin}["
            for begin in ("", "```json\n", "```json", "```\n", "[TOOL_CALLS]", "[TOOL_CALLS] ", "<tool_call>", "<tool_call>\n")
        ),
        _T.NEXT: (",",),
        _T.UNLIST: _ends_of_list("```", "</tool_call>"),
        _T.SHUT: ("}",),
    },
)

LLAMA3_JSON: Final = Syntax(
    "envelope", {_T.SECTION: ("<|python_tag|>",), _T.OBJECT: ("{",), _T.NEXT: (";", ","), _T.SHUT: ("}",)}
)

GRANITE_20B_FC: Final = Syntax("envelope", {_T.CALL: ("<function_call>",), _T.SHUT: ("}",)})

GIGACHAT3: Final = Syntax(
    "envelope",
    {
        _T.CALL: ("<|function_call|>", "function call<|role_sep|>"),
        _T.SHUT: ("}",),
        _T.UNANSWER: ("<|message_sep|>",),
    },
)

LONGCAT: Final = _envelope_in("<longcat_tool_call>", "</longcat_tool_call>")
INTERNLM: Final = _envelope_in("<|action_start|><|plugin|>", "<|action_end|>")

_MARKED_KEY: Final = re.compile(r"""\s*["']?(?P<key>(?!</)[^"'\s](?:(?:(?!</)[^\n])*[^"'\s])?)["']?\s*""")
"""A key between two markers, which may have any sign; but another end marker is no part of it."""

GLM45: Final = Syntax(
    "keys",
    {
        _T.CALL: ("<tool_call>",),
        _T.KEYS: ("<arg_key>", "</tool_call>"),
        _T.KEY: ("<arg_key>",),
        _T.UNCALL: ("</tool_call>",),
        _T.UNKEY: ("</arg_key>",),
        _T.VALUE: ("<arg_value>",),
        _T.UNVALUE: ("</arg_value>",),
    },
    key=_MARKED_KEY,
    own_lines=False,
)

SPARK25: Final = evolve(
    GLM45,
    markers={
        **GLM45.markers,
        _T.CALL: ("<|tool_call|>", "<tool_call>"),
        _T.KEYS: ("<arg_key>", "<|/tool_call|>", "</tool_call>"),
        _T.UNCALL: ("<|/tool_call|>", "</tool_call>"),
    },
)


def _add_suffix(*tags: str) -> tuple[str, ...]:
    """Return tags, and the same with the suffix that some checkpoints add, as in `<tool_call:6124c78e>`."""
    return (*tags, *(f"{tag[:-1]}:{ANY}>" for tag in tags))


HY_V4: Final = evolve(
    GLM45,
    markers={
        **{role: _add_suffix(*texts) for role, texts in GLM45.markers.items() if role not in {_T.CALL, _T.KEYS}},
        _T.SECTION: _add_suffix("<tool_calls>"),
        _T.INVOKE: _add_suffix("<tool_call>"),
        _T.BARE: _add_suffix("<tool_call>"),
        _T.REHEARSED: _add_suffix("<tool_call>"),
        _T.UNSECTION: _add_suffix("</tool_calls>"),
        _T.KEYS: _add_suffix(*GLM45.markers[_T.KEYS]),
    },
)

HY_V3: Final = evolve(HY_V4, markers={**HY_V4.markers, _T.KEYS: (*HY_V4.markers[_T.KEYS], *_add_suffix("<tool_sep>"))})

K2_HORIZON: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<ifm|tool_calls>",),
        _T.INVOKE: ("<ifm|tool_call>",),
        _T.BARE: ("<ifm|tool_call>",),
        _T.REHEARSED: ("<ifm|tool_call>",),
        _T.KEYS: ("<ifm|arg_key>", "</ifm|tool_call>"),
        _T.KEY: ("<ifm|arg_key>",),
        _T.UNKEY: ("</ifm|arg_key>",),
        _T.VALUE: ("<ifm|arg_value>", *(f"<ifm|arg_type>{ANY}</ifm|arg_type>{blank}<ifm|arg_value>" for blank in ("", "\n"))),
        _T.UNVALUE: ("</ifm|arg_value>",),
        _T.UNCALL: ("</ifm|tool_call>",),
        _T.UNSECTION: ("</ifm|tool_calls>",),
    },
    key=_MARKED_KEY,
    own_lines=False,
)

MINICPM5: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<tool_call>",),
        _T.CALL: ("<function name=", "<functionname="),
        _T.INVOKE: ("<function name=", "<functionname="),
        _T.KEYS: (">",),
        _T.KEY: ("<param name=", "<paramname="),
        _T.VALUE: (">", "><![CDATA["),
        _T.UNVALUE: ("</param>", "]]></param>"),
        _T.UNCALL: ("</function>",),
        _T.UNSECTION: ("</tool_call>",),
    },
    own_lines=False,
)

MINIMAX_M2: Final = Syntax(
    "keys",
    {
        _T.SECTION: ("<minimax:tool_call>",),
        _T.INVOKE: ("<invoke name=",),
        _T.BARE: ("<invoke name=",),
        _T.KEYS: (">",),
        _T.KEY: ("<parameter name=",),
        _T.VALUE: (">",),
        _T.UNVALUE: ("</parameter>",),
        _T.UNCALL: ("</invoke>",),
        _T.UNSECTION: ("</minimax:tool_call>",),
    },
)

DOTS: Final = evolve(
    MINIMAX_M2,
    markers={
        **MINIMAX_M2.markers,
        _T.SECTION: ("<dots_function_call>",),
        _T.VALUE: (">\n", ">"),
        _T.UNVALUE: ("\n</parameter>", "</parameter>"),
        _T.UNSECTION: ("</dots_function_call>",),
    },
)


def _marked_up(name: str) -> Syntax:
    """Return the syntax of DeepSeek's markup, whose tags begin with a mark of this name.

    Models of each version use the tags of other versions, misspell them, omit markers, and write ends that match nothing. So a
    section may have any name, and an unmatched end is dropped.
    """
    marks = tuple(
        mark.replace("DSML", name) for mark in ("｜DSML｜", "｜DSML｜ ", "|DSML|", "|DSML| ", "｜｜DSML｜｜", "||DSML||")
    )

    def each(text: str) -> tuple[str, ...]:
        return tuple(text.replace("DSML", mark) for mark in marks)

    sections, invokes, keys = each(f"<DSML{ANY}>"), each("<DSMLinvoke"), each("<DSMLparameter")
    ends, values_end, calls_end = (each(f"</DSML{name}{ANY}>") for name in ("", "param", "inv"))
    names = ("tool_calls", "function_calls", "calls", "tool_call")
    sections_end = tuple(text for name in names for text in each(f"</DSML{name}>"))
    return Syntax(
        "keys",
        {
            _T.ORPHAN: (*sections, *ends, *values_end, *sections_end, *calls_end),
            _T.UNVALUE: (*values_end, *invokes, *keys),
            _T.MISSPELLED: (*ends, *sections_end, *calls_end),
            _T.SECTION: sections,
            _T.INVOKE: invokes,
            _T.BARE: invokes,
            _T.LONE: invokes,
            _T.KEYS: (">",),
            _T.KEY: keys,
            _T.VALUE: (">",),
            _T.UNCALL: calls_end,
            _T.EARLY_UNCALL: calls_end,
            _T.UNSECTION: sections_end,
        },
        name=re.compile(r"""\s*name\s*=\s*["']?(?P<name>[\w.:/$-]+)["']?\s*/?\s*"""),
        partial_name=re.compile(r"""[\s\w.:/$="'-]*"""),
        key=re.compile(
            r"""\s*(?:(?:name\s*=\s*["']?(?P<key>(?!["'])[^<>\n]+?)["']?(?=\s+[\w-]+\s*=|\s*$)"""
            r"""|string\s*=\s*["']?(?P<string>(?i:true|false))["']?"""
            r"""|[\w-]+\s*=\s*(?:"[^"\n]*"|'[^'\n]*'|[\w-]*))(?=\s|$)\s*)+"""
        ),
        lenient=True,
        own_lines=False,
        omits_ends=True,
    )


DSML: Final = _marked_up("DSML")
GCML: Final = _marked_up("GCML")

KIMI_K2: Final = Syntax(
    "json",
    {
        _T.SECTION: ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
        _T.INVOKE: ("<|tool_call_begin|>",),
        _T.BARE: ("<|tool_call_begin|>",),
        _T.REHEARSED: ("<|tool_call_begin|>",),
        _T.JSON: ("<|tool_call_argument_begin|>",),
        _T.UNCALL: ("<|tool_call_end|>",),
        _T.UNSECTION: ("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    },
    name=re.compile(r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.:/$-]+?)(?::\d+)?)\s*"),
    declared_names=(re.compile(r"\s*(?P<id>functions(?P<name>.+))"), re.compile(r"\s*(?P<id>functions(?P<name>.+?)\d+)")),
    ids=re.compile(r"functions\.[\w.:/$-]+:\d+"),
)

DEEPSEEK_V31: Final = Syntax(
    "json",
    {
        _T.SECTION: ("<｜tool▁calls▁begin｜>",),
        _T.INVOKE: ("<｜tool▁call▁begin｜>",),
        _T.BARE: ("<｜tool▁call▁begin｜>",),
        _T.REHEARSED: ("<｜tool▁call▁begin｜>",),
        _T.JSON: ("<｜tool▁sep｜>",),
        _T.UNCALL: ("<｜tool▁call▁end｜>",),
        _T.UNSECTION: ("<｜tool▁calls▁end｜>",),
    },
)

DEEPSEEK_V3: Final = evolve(
    DEEPSEEK_V31,
    markers={
        **DEEPSEEK_V31.markers,
        _T.INVOKE: ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",),
        _T.BARE: ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",),
        _T.REHEARSED: ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",),
        _T.JSON: ("\n```json\n",),
        _T.SHUT: ("\n```", "```"),
    },
)

FUNCTIONARY_V31: Final = Syntax("json", {_T.CALL: ("<function=",), _T.JSON: (">",), _T.UNCALL: ("</function>",)})

MIROTHINKER: Final = Syntax(
    "json",
    {
        _T.SECTION: ("<use_mcp_tool>",),
        _T.INVOKE: (f"<server_name>{ANY}</server_name>{SPACE}<tool_name>",),
        _T.JSON: (f"</tool_name>{SPACE}<arguments>",),
        _T.SHUT: ("</arguments>",),
        _T.UNSECTION: ("</use_mcp_tool>",),
    },
)

MISTRAL: Final = Syntax(
    "json",
    {_T.CALL: ("[TOOL_CALLS]",), _T.JSON: ("[ARGS]", "{")},
    name=re.compile(r"\s*(?P<name>[\w.:/$-]+)(?:\[CALL_ID\](?P<id>\w+))?\s*"),
    ids=re.compile(r"[0-9A-Za-z]{9}"),
    required_marker="[ARGS]",
    partial_name=re.compile(r"\s*[\w.:/$-]*(?:\[(?:C(?:A(?:L(?:L(?:_(?:I(?:D(?:\]\w*)?)?)?)?)?)?)?)?)?\s*"),
)

PLAMO3: Final = Syntax(
    "json",
    {
        _T.SECTION: ("<|plamo:begin_tool_requests:plamo|>",),
        _T.INVOKE: ("<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",),
        _T.BARE: ("<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",),
        _T.REHEARSED: ("<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",),
        _T.JSON: (
            "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
            "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>",
        ),
        _T.SHUT: ("<|plamo:end_tool_arguments:plamo|>",),
        _T.UNCALL: ("<|plamo:end_tool_request:plamo|>",),
        _T.UNSECTION: ("<|plamo:end_tool_requests:plamo|>",),
        _T.UNANSWER: ("<|plamo:tag|>",),
    },
)

PYTHONIC: Final = Syntax(
    "literal",
    {_T.BARE: ("[",), _T.INVOKE: (",",), _T.LITERAL: ("=", ")"), _T.UNSECTION: _ends_of_list()},
    name=re.compile(r"\s*(?P<name>[\w.-]+)\s*(?P<start>\(\s*(?:[\w-]+\s*(?==)|(?=\))))[=)]"),
    partial_name=re.compile(r"\s*(?:[\w.-]+\s*(?:\(\s*(?:[\w-]+\s*)?)?)?"),
    notation=PYTHON,
)

LLAMA4_PYTHONIC: Final = evolve(
    PYTHONIC,
    markers={
        **PYTHONIC.markers,
        _T.SECTION: ("<|python_start|>",),
        _T.INVOKE: ("[", ","),
        _T.UNSECTION: (*_ends_of_list("<|python_end|>"), "<|python_end|>"),
    },
)

LFM2: Final = evolve(
    PYTHONIC,
    markers={
        _T.SECTION: ("<|tool_call_start|>",),
        _T.INVOKE: ("[", ","),
        _T.LITERAL: ("=", ")"),
        _T.UNSECTION: (*_ends_of_list("<|tool_call_end|>"), "<|tool_call_end|>"),
    },
)

OLMO3: Final = evolve(
    PYTHONIC,
    markers={
        _T.CALL: ("<function_calls>",),
        _T.INVOKE: ("\n",),
        _T.LITERAL: ("=", ")"),
        _T.UNSECTION: ("\n</function_calls>", "</function_calls>"),
    },
)

GEMMA4: Final = Syntax(
    "literal",
    {_T.CALL: ("<|tool_call>",), _T.LITERAL: ("{", "("), _T.UNCALL: ("<tool_call|>",)},
    name=re.compile(r"\s*(?:call)?:?-?(?P<name>[\w./$-]+)\s*[{(]"),
    declared_names=(re.compile(r"\s*(?:call:)?(?P<name>[\w.:/$-]+)\s*[{(]"),),
    partial_name=re.compile(r"\s*[\w.:/$-]*\s*"),
    notation=GEMMA,
)

FUNCTIONGEMMA: Final = evolve(
    GEMMA4,
    markers={_T.CALL: ("<start_function_call>",), _T.LITERAL: ("{", "("), _T.UNCALL: ("<end_function_call>",)},
    notation=FUNCTION_GEMMA,
)

_NS: Final = ELEMENTS.namespace

MINIMAX_M3: Final = Syntax(
    "literal",
    {
        _T.SECTION: (f"{_NS}<tool_call>",),
        _T.INVOKE: (f"{_NS}<invoke name=",),
        _T.BARE: (f"{_NS}<invoke name=",),
        _T.LITERAL: (">",),
        _T.UNCALL: (f"{_NS}</invoke>",),
        _T.UNSECTION: (f"{_NS}</tool_call>",),
    },
    name=re.compile(r"""\s*["']?(?P<name>[\w.:/$-]+)["']?\s*>"""),
    notation=ELEMENTS,
)

_FAMILIES: Final[Mapping[str, tuple[Syntax, str | None]]] = {
    "qwen3_coder": (QWEN3_CODER, "qwen3"),
    "qwen3_xml": (QWEN3_CODER, "qwen3"),
    "step3p5": (QWEN3_CODER, "step3p5"),
    "step5": (QWEN3_CODER, "step5"),
    "mimo": (MIMO, "mimo"),
    "seed_oss": (SEED_OSS, "seed_oss"),
    "step3": (STEP3, "step3"),
    "kimi_k3": (KIMI_K3, "kimi_k3"),
    "hermes": (HERMES, "qwen3"),
    "qwen3_json": (HERMES, "qwen3"),
    "granite4": (HERMES, None),
    "ernie45": (HERMES, "ernie45"),
    "longcat": (LONGCAT, None),
    "internlm": (INTERNLM, None),
    "granite-20b-fc": (GRANITE_20B_FC, None),
    "gigachat3": (GIGACHAT3, None),
    "llama3_json": (LLAMA3_JSON, None),
    "llama4_json": (LLAMA3_JSON, None),
    "granite": (GRANITE, None),
    "jamba": (JAMBA, None),
    "apriel": (JAMBA, "apriel"),
    "nemotron_json": (NEMOTRON_JSON, "deepseek_r1"),
    "hunyuan_a13b": (JAMBA, "hunyuan_a13b"),
    "phi4_mini_json": (PHI4_MINI, None),
    "cohere_command3": (COHERE_COMMAND, "cohere_command3"),
    "cohere_command4": (COHERE_COMMAND, "cohere_command4"),
    "apertus": (APERTUS, None),
    "xlam": (XLAM, None),
    "glm45": (GLM45, "glm45"),
    "glm47": (GLM45, "glm47"),
    "ling3": (GLM45, "ling3"),
    "poolside_v1": (GLM45, "poolside_v1"),
    "spark25": (SPARK25, "deepseek_v3"),
    "hy_v3": (HY_V3, "hy_v3"),
    "hy_v4": (HY_V4, "hy_v4"),
    "k2_horizon": (K2_HORIZON, "k2_horizon"),
    "minicpm5": (MINICPM5, "qwen3"),
    "minimax_m2": (MINIMAX_M2, "minimax_m2"),
    "dots": (DOTS, "qwen3"),
    "deepseek_v32": (DSML, "deepseek_r1"),
    "deepseek_v4": (DSML, "deepseek_v4"),
    "deepseek_v41": (DSML, "deepseek_v41"),
    "gigachat35": (GCML, "gigachat35"),
    "kimi_k2": (KIMI_K2, "kimi_k2"),
    "deepseek_v3": (DEEPSEEK_V3, "deepseek_r1"),
    "deepseek_v31": (DEEPSEEK_V31, "deepseek_r1"),
    "mistral": (MISTRAL, "mistral"),
    "functionary_v31": (FUNCTIONARY_V31, None),
    "mirothinker": (MIROTHINKER, "qwen3"),
    "plamo3": (PLAMO3, "plamo3"),
    "pythonic": (PYTHONIC, None),
    "llama4_pythonic": (LLAMA4_PYTHONIC, None),
    "olmo3": (OLMO3, "olmo3"),
    "lfm2": (LFM2, "qwen3"),
    "gemma4": (GEMMA4, "gemma4"),
    "functiongemma": (FUNCTIONGEMMA, None),
    "minimax_m3": (MINIMAX_M3, "minimax_m3"),
}
"""The format of calls of each `--tool-call-parser`, and the `--reasoning-parser` of its models, or None if they do not reason."""

SYNTAXES: Final[Mapping[str, Syntax]] = MappingProxyType({name: syntax for name, (syntax, _) in _FAMILIES.items()})
"""The formats of calls, by the names of `--tool-call-parser`."""

DEFAULT_REASONING: Final[Mapping[str, str | None]] = MappingProxyType(
    {name: reasoning for name, (_, reasoning) in _FAMILIES.items()}
)
"""The reasoning format of the models of each `--tool-call-parser`, or None if they do not reason."""

DISTINCT: Final[Sequence[str]] = tuple({syntax: name for name, syntax in [*SYNTAXES.items()][::-1]}.values())[::-1]
"""One name of each syntax: the first in the catalog."""

_THINK: Final = ReasoningSyntax()
_ASKED: Final = evolve(_THINK, implied=False)
"""The format of models that reason only if the prompt asks for it."""
_HY: Final = evolve(_THINK, begins=_add_suffix("<think>"), ends=_add_suffix("\n</think>", "</think>"))
_COHERE: Final = evolve(_ASKED, begins=("<|START_THINKING|>",), ends=("<|END_THINKING|>",))

REASONINGS: Final[Mapping[str, ReasoningSyntax]] = MappingProxyType(
    {
        **dict.fromkeys(("qwen3", "step3p5", "step5", "step3", "olmo3"), _THINK),
        "bedrock_gpt_oss": evolve(_ASKED, begins=("<reasoning>",), ends=("</reasoning>",)),
        "seed_oss": evolve(_THINK, begins=("<seed:think>",), ends=("\n</seed:think>", "</seed:think>")),
        "kimi_k3": evolve(_THINK, begins=("<|open|>think<|sep|>",), ends=("<|close|>think<|sep|>",), answers=_XTML_ANSWERS),
        "minimax_m3": evolve(_THINK, begins=("<mm:think>",), ends=("\n</mm:think>", "</mm:think>"), implied=False),
        **dict.fromkeys(("glm45", "glm47", "minimax_m2", "kimi_k2", "deepseek_v4", "deepseek_v41", "deepseek_r1"), _THINK),
        **dict.fromkeys(("deepseek_v3", "gigachat35"), _ASKED),
        "holo2": _THINK,
        "poolside_v1": _ASKED,
        **dict.fromkeys(("ling3", "mimo", "nemotron_v3", "granite_thinking_parser"), _THINK),
        "hy_v3": evolve(_HY, implied=False),
        "hy_v4": _HY,
        "k2_horizon": evolve(
            _THINK,
            begins=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
            ends=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
        ),
        "apertus": evolve(_ASKED, begins=("<|inner_prefix|>",), ends=("<|inner_suffix|>",)),
        "apriel": evolve(
            _THINK,
            begins=("Here are my reasoning steps:\n", "Here are my reasoning steps:"),
            ends=tuple(f"{before}[BEGIN FINAL RESPONSE]{after}" for before in ("\n", "") for after in ("\n", "")),
            answers=((), ("\n[END FINAL RESPONSE]", "[END FINAL RESPONSE]")),
        ),
        "plamo3": evolve(_THINK, begins=("<|plamo:begin_think:plamo|>",), ends=("<|plamo:end_think:plamo|>",)),
        "ernie45": evolve(_THINK, answers=(("<response>\n", "<response>"), ("\n</response>", "</response>"))),
        "hunyuan_a13b": evolve(_ASKED, answers=(("<answer>\n", "<answer>"), ("\n</answer>", "</answer>"))),
        "granite": evolve(
            _ASKED,
            begins=("Here is my thought process:", "Here's my thought process:"),
            ends=("Here is my response:", "Here's my response:"),
        ),
        "cohere_command3": evolve(_COHERE, answers=(("<|START_RESPONSE|>",), ("<|END_RESPONSE|>",))),
        "cohere_command4": evolve(
            _COHERE, answers=(("<|START_RESPONSE|>", "<|START_TEXT|>"), ("<|END_RESPONSE|>", "<|END_TEXT|>"))
        ),
        "gemma4": evolve(
            _THINK,
            begins=("<|channel>thought\n", "<|channel>thought", "<|channel>"),
            ends=("\n<channel|>", "<channel|>"),
            implied=False,
        ),
        "mistral": evolve(_THINK, begins=("[THINK]", "<think>"), ends=("[/THINK]", "\n</think>", "</think>"), implied=False),
    }
)
"""The formats of reasoning, by the names of `--reasoning-parser`."""

OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openai": "harmony, read by token id",
        "openai_gptoss": "harmony, read by token id",
        "hf": "a family compiled from the checkpoint's `response_template` when the server starts",
        "inkling": "vLLM's parser: a header may name the function before the marker of its call",
        **dict.fromkeys(("muse", "musespark1x", "muse_glimmer"), "vLLM's parser: a header names the recipient of each message"),
        "beam": "vLLM's parser, which also constrains the model by the checkpoint's `response_template`",
        "minicpmv": "vLLM's parser, which also repairs line breaks that this model's tokenizer decodes to two characters",
        "minimax_m2_append_think": "vLLM's parser, which leaves reasoning in the message on purpose",
    }
)
"""The names of vLLM's parsers that have no row here, and what reads these models."""


def has_family(tool_parser: str | None, reasoning_parser: str | None) -> bool:
    """Return whether these two parsers, one of which may be None, form a known family."""
    calls, reasons = tool_parser or None, reasoning_parser or None
    return (calls is None or calls in SYNTAXES) and (reasons is None or reasons in REASONINGS) and bool(calls or reasons)


@cache
def family(tool_parser: str | None, reasoning_parser: str | None = None) -> Family:
    """Return the family of two parsers; None leaves calls, or reasoning, in the text.

    Raises:
        ValueError: A parser is unknown; the message lists the known ones.
    """
    for kind, name, names in (("tool", tool_parser, SYNTAXES), ("reasoning", reasoning_parser, REASONINGS)):
        if name is not None and name not in names:
            raise ValueError(f"unknown {kind} parser {name!r}: choose one of {', '.join(names)}")
    syntax = None if tool_parser is None else SYNTAXES[tool_parser]
    reasoning = None if reasoning_parser is None else REASONINGS[reasoning_parser]
    return Family(" and ".join(filter(None, (tool_parser, reasoning_parser))), syntax, reasoning)
