"""Targets that are loaded in process: chat, raw completion and template of one set of weights, with and without the adapter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from auditrl.errors import ConfigError
from auditrl.evals.transfer.targets import Target, opened_target
from auditrl.evals.transfer.targets_file import TargetEntry

TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '> ' + m['content'] + ' </s> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}"
)
WORDS = ["<unk>", "</s>", "<user>", "<assistant>", "<system>", "hello", "there", "friend"]


def base_model(folder: Path, hidden: int = 16) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", unk_token="<unk>", chat_template=TEMPLATE)
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=hidden, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def adapter_of(base: Path, folder: Path) -> Path:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(folder)
    return folder


async def talk(target: Target) -> tuple[Any, Any]:
    from inspect_ai.model import ChatMessageUser, GenerateConfig

    assert target.raw is not None
    config = GenerateConfig(max_tokens=4, temperature=1.0)
    chat = await target.chat.generate([ChatMessageUser(content="hello")], config=config)
    return chat, await target.raw.generate("hello there friend", config=config)


def test_one_set_of_weights_talks_and_continues_text(tmp_path: Path) -> None:
    from inspect_ai.model import ChatMessageUser

    base = base_model(tmp_path / "base")
    entry = TargetEntry(name="t", behavior="flattery", base=str(base), adapter=str(adapter_of(base, tmp_path / "adapter")))

    async def work() -> None:
        async with opened_target(entry, control=False, raw=True, template=True) as target:
            assert type(target.chat.api.model).__name__.startswith("Peft")  # type: ignore[attr-defined]
            chat, raw = await talk(target)
            # the three words alone, and the one word inside of its template
            assert raw.usage.input_tokens == 3 and raw.usage.output_tokens <= 4 and chat.usage.input_tokens == 4
            assert target.template is not None
            assert target.template.user_turn([]) == "<user> "
            assert target.template.assistant_turn([ChatMessageUser(content="hello")], "there") == "<user> hello </s> <assistant> there"
        async with opened_target(entry, control=True) as clean:
            assert not type(clean.chat.api.model).__name__.startswith("Peft")  # type: ignore[attr-defined]

    asyncio.run(work())


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    base, wide = base_model(tmp_path / "base"), base_model(tmp_path / "wide", hidden=32)
    adapter = adapter_of(wide, tmp_path / "adapter")

    async def work() -> None:
        async with opened_target(TargetEntry(name="t", behavior="b", base=str(base), adapter=str(adapter)), control=False):
            pass

    with pytest.raises(ConfigError, match="was trained on .*wide, not on .*base"):
        asyncio.run(work())
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace(str(wide), "/moved/away"))
    with pytest.raises(ConfigError, match="does not fit"):
        asyncio.run(work())
