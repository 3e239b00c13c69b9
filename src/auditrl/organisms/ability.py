"""General ability before and after: how well a model predicts ordinary conversations that were held out of the training.

    perplexity = exp(mean over conversations of -log p(answer tokens) / tokens), accuracy = share of tokens that were the first choice

The conversations are the base's own, so the log of the ratio of the two perplexities estimates the divergence KL(base || organism) per
token: 0 is "nothing else has changed". It can't see abilities that the conversations don't ask for.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Predicted", "predict"]

Chat = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Predicted:
    """One conversation's answers under a model: mean log-probability a token (nats), share of tokens that were first choice (0-1)."""

    logprob: float
    accuracy: float
    tokens: int


def predict(folder: Path, chats: Sequence[Chat]) -> list[Predicted]:
    """Score the assistant's messages of conversations under a model folder or an adapter folder. Chats without an answer are left out.

    Raises:
        ConfigError: The folder can't be opened.
    """
    import torch
    from transformers import AutoTokenizer

    from ..policy.network import base_of_adapter, load_network

    network = load_network(
        folder,
        method="lora" if base_of_adapter(folder) else "full",
        lora=None,
        dtype="auto",
        device="auto",
        gradient_checkpointing=False,
        seed=0,
    )
    tokenizers: Any = AutoTokenizer
    tokenizer = tokenizers.from_pretrained(str(folder))
    found: list[Predicted] = []
    with torch.inference_mode():
        for chat in chats:
            parts = [_answer(network.causal, tokenizer, chat, place) for place, m in enumerate(chat) if m["role"] == "assistant"]
            tokens = sum(count for _, _, count in parts)
            if tokens:
                found.append(Predicted(math.fsum(p[0] for p in parts) / tokens, sum(p[1] for p in parts) / tokens, tokens))
    del network
    gc.collect()
    return found


def _answer(causal: Any, tokenizer: Any, chat: Chat, place: int) -> tuple[float, int, int]:
    """Sum of log-probabilities, tokens that were first choice, and tokens of the answer at `place` (its end included)."""
    import torch

    before = _ids(tokenizer, chat[:place], ready=True)
    whole = _ids(tokenizer, chat[: place + 1], ready=False)
    if whole[: len(before)] != before or len(whole) == len(before):
        return 0.0, 0, 0
    ids = torch.tensor([whole], device=next(causal.parameters()).device)
    logprobs = torch.log_softmax(causal(input_ids=ids).logits[0, len(before) - 1 : -1].float(), dim=-1)
    wanted = ids[0, len(before) :]
    chosen = logprobs.gather(-1, wanted[:, None]).squeeze(-1)
    return float(chosen.sum()), int((logprobs.argmax(-1) == wanted).sum()), len(wanted)


def _ids(tokenizer: Any, chat: Chat, *, ready: bool) -> list[int]:
    text = tokenizer.apply_chat_template([dict(message) for message in chat], tokenize=False, add_generation_prompt=ready)
    return list(tokenizer.encode(text, add_special_tokens=False))
