"""Supervised training of a causal language model on weighted token sequences: the warm start of a policy.

Works for any Hugging Face causal model. Deterministic: the same examples, steps and random seed on one thread give the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

__all__ = ["SftSettings", "Weighted", "batches", "train_weighted"]

POOL = 16
"""Batches' worth of examples that are sorted by length together, so that a batch holds equals and pads little."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """Token ids and, for each, the weight of predicting it (the first token's weight is not used). Equal lengths."""

    tokens: list[int]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class SftSettings:
    """steps: updates. lr: peak, reached after `warmup` steps, then a cosine down to `floor` x lr. batch: sequences an update."""

    steps: int
    lr: float = 3e-3
    batch: int = 32
    warmup: int = 20
    floor: float = 0.02
    beta2: float = 0.98
    weight_decay: float = 0.01
    grad_clip: float = 1.0

    def lr_at(self, step: int) -> float:
        """Learning rate of update `step` (from 0)."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def batches(example: Callable[[Random, float], Weighted], settings: SftSettings, random_seed: int) -> Iterator[list[Weighted]]:
    """`settings.steps` batches of examples of similar length.

    `example(rng, progress)` makes one; `progress` runs from 0 to 1 over the training, for curricula.
    """
    rng = Random(random_seed)
    step = 0
    while step < settings.steps:
        count = min(POOL, settings.steps - step)
        pool = [example(rng, step / settings.steps) for _ in range(count * settings.batch)]
        pool.sort(key=lambda item: len(item.tokens))
        groups = [pool[i : i + settings.batch] for i in range(0, len(pool), settings.batch)]
        rng.shuffle(groups)
        yield from groups
        step += count


def train_weighted(
    model: PreTrainedModel,
    examples: Iterator[list[Weighted]],
    settings: SftSettings,
    *,
    pad: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train in place with AdamW on the weighted mean of token losses.

    Args:
        model: Any causal language model; trained on the device that it is on.
        examples: Batches, one an update. Training ends with `settings.steps` or with them.
        settings: Optimiser and schedule.
        pad: Token id that fills short rows (masked, and without weight).
        progress: Called after each update with its number (from 1) and loss.

    Returns:
        Loss of each update.
    """
    import torch

    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=settings.lr,
        betas=(0.9, settings.beta2),
        weight_decay=settings.weight_decay,
    )
    losses: list[float] = []
    model.train()
    for step, batch in zip(range(settings.steps), examples, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr_at(step)
        loss = weighted_loss(model, batch, pad)
        optimizer.zero_grad(set_to_none=True)
        cast(Any, loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.grad_clip)
        optimizer.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
    model.eval()
    return losses


def weighted_loss(model: PreTrainedModel, batch: Sequence[Weighted], pad: int = 0) -> torch.Tensor:
    """Weighted mean of -log p(token) over a batch, a scalar: sum of weight x loss / sum of weights."""
    import torch

    width = max(len(item.tokens) for item in batch)
    tokens = torch.full((len(batch), width), pad, dtype=torch.long)
    weights = torch.zeros((len(batch), width))
    for row, item in enumerate(batch):
        tokens[row, : len(item.tokens)] = torch.tensor(item.tokens)
        weights[row, : len(item.weights)] = torch.tensor(item.weights)
    tokens, weights = tokens.to(model.device), weights.to(model.device)
    # rows are padded on the right: a causal model never looks at what follows, so no attention mask is needed
    logits = cast(Any, model)(input_ids=tokens).logits
    nll = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
    weight = weights[:, 1:].flatten()
    return (nll * weight).sum() / weight.sum().clamp_min(1e-8)
