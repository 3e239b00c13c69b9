"""Tiny models and tokenizers made from scratch, for tests of the policy engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

torch.set_num_threads(1)

VOCABULARY = 64


def tiny_config(*, layers: int = 2, **changes: Any) -> LlamaConfig:
    """A Llama of 2 layers, 32 hidden, 64 words."""
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
    }
    return LlamaConfig(**{**shape, **changes})


def tiny_llama(folder: Path, *, seed: int = 0, layers: int = 2, **changes: Any) -> Path:
    """Save an untrained `tiny_config`."""
    torch.manual_seed(seed)
    LlamaForCausalLM(tiny_config(layers=layers, **changes)).save_pretrained(folder)
    return folder


def tiny_mistral(folder: Path) -> Path:
    """Save an untrained model that looks back four tokens only."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=128,
        sliding_window=4,
        initializer_range=0.3,
    )
    MistralForCausalLM(config).save_pretrained(folder)
    return folder


CHATML = (
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% if tools %}{{ '<|im_start|>system\n' + system + '\ntools:' }}{% for tool in tools %}{{ ' ' + tool.function.name }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% elif system %}{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' + message.content }}"
    "{% for call in message.tool_calls or [] %}{{ '\n<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% elif message.role != 'system' %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def chat_tokenizer(template: str | None = CHATML) -> Any:
    """Byte-level tokenizer with one merge ("t" + "h"), so that a text has more than one encoding, and a ChatML-like template."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate([*letters, "th"])}
    tokenizer: Any = Tokenizer(BPE(vocab=vocabulary, merges=[("t", "h")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<|end|>", "<|im_start|>", "<|im_end|>")])
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = template
    return fast
