"""The calls of the families match the structural tags with which vLLM constrains its models, if it has a tag for a family."""

import warnings

import orjson
import pytest

from interlock.parsers.families.reference_encoders import WrittenItem, encode

pytest.importorskip("vllm.version", reason="vLLM is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import xgrammar
    from vllm.tool_parsers import structural_tag_registry as registry

MODELS = {
    "qwen3_coder": "qwen_3_coder",
    "hermes": "hermes",
    "qwen3_json": "qwen_3",
    "glm47": "glm_4_7",
    "minimax_m2": "minimax",
    "deepseek_v32": "deepseek_v3_2",
    "deepseek_v4": "deepseek_v4",
    "kimi_k2": "kimi",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3_1",
}
SCHEMA = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s", "n"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, "strict": True}}


def grammar(name):
    """Return the grammar for a required call."""
    model = MODELS[name]
    builtin = getattr(registry, "_VLLM_STRUCTURAL_TAG_REGISTRY", {})
    if model in builtin:
        functions, others, choice = xgrammar.normalize_tool_choice([TOOL], "required")
        tag = builtin[model](functions, others, choice, False, "")  # noqa: FBT003 - as vLLM calls it
    else:
        tag = xgrammar.get_model_structural_tag(model, [TOOL], "required", "disabled")
    return xgrammar.Grammar.from_structural_tag(tag)


@pytest.mark.parametrize("name", MODELS)
def test_a_call_as_the_encoder_writes_it_follows_the_structural_tag(name):
    text = encode([WrittenItem("call", orjson.dumps({"s": "Rome", "n": 5}).decode(), "get_weather")], name)
    info = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)])
    compiled = xgrammar.GrammarCompiler(info).compile_grammar(grammar(name))
    for before in ("", "\n", "\n\n"):  # some tags require the line breaks between text and calls
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        if matcher.accept_string(before + text) and matcher.is_terminated():
            return
    matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
    taken = next((at for at in range(len(text)) if not matcher.accept_string(text[at])), len(text))
    raise AssertionError(f"{text[:taken]!r} is taken, then comes {text[taken : taken + 40]!r}")
