"""One optimiser update over a batch of segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from .engine import AdamConfig, LossConfig, Segment
from .losses import LossSums, policy_loss
from .microbatch import MicroBatch, micro_batches
from .network import PolicyNetwork, Weights
from .optimizer import clip_gradient, collect_gradient
from .segments import check_segments

__all__ = ["update"]


def update(
    network: PolicyNetwork,
    optimizer: torch.optim.AdamW,
    segments: Sequence[Segment],
    *,
    loss: LossConfig,
    adam: AdamConfig,
    temperature: float,
    micro_batch_tokens: int,
    start: Weights | None,
) -> dict[str, float]:
    """Accumulate the gradient of the whole batch, clip it, and step once. Nothing changes if loss or gradient is not finite.

    Returns:
        `loss`, `ratio_mean`, `ratio_max`, `clip_share`, `masked_share`, `kl_sampling`, `kl_start` (only if `loss.kl_coef`), `grad_norm`
        (before clipping), `tokens`, `trained_tokens`, `skipped` (1: no update was made; `loss` and `grad_norm` are then 0).
    """
    check_segments(segments)
    total = sum(sum(s.mask) for s in segments)
    sums, value = LossSums(), 0.0
    optimizer.zero_grad(set_to_none=True)
    for batch in micro_batches(segments, micro_batch_tokens, network.device, share_heads=network.shares_heads):
        part, part_sums = _backward(network, batch, loss, temperature, start, total)
        collect_gradient(optimizer)
        sums.add(part_sums)
        value += part
        if not math.isfinite(value):
            break
    norm = clip_gradient(optimizer, adam.grad_clip)
    done = total > 0 and math.isfinite(value) and math.isfinite(norm)
    if done:
        for group in optimizer.param_groups:
            group.update(lr=adam.lr, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay)
        cast(Any, optimizer).step()
    optimizer.zero_grad(set_to_none=True)
    metrics = _means(sums)
    if not loss.kl_coef:
        del metrics["kl_start"]
    return {
        "loss": value if done else 0.0,
        **metrics,
        "grad_norm": norm if done else 0.0,
        "tokens": float(sum(len(s.tokens) for s in segments)),
        "trained_tokens": float(total),
        "skipped": 0.0 if done else 1.0,
    }


def _backward(
    network: PolicyNetwork, batch: MicroBatch, loss: LossConfig, temperature: float, start: Weights | None, total: int
) -> tuple[float, LossSums]:
    start_logprobs = None
    if loss.kl_coef:
        with torch.no_grad(), network.using(start):
            start_logprobs = network.token_logprobs(batch, temperature=temperature)
    logprobs = network.token_logprobs(batch, temperature=temperature)
    summed, sums = policy_loss(logprobs, batch.sampling, batch.advantages, loss, start=start_logprobs)
    mean = summed / total
    cast(Any, mean).backward()
    return float(mean.detach()), sums


def _means(sums: LossSums) -> dict[str, float]:
    count = max(1, sums.tokens)
    means = {
        "ratio_mean": sums.ratio / count,
        "ratio_max": sums.ratio_max,
        "clip_share": sums.clipped / count,
        "masked_share": sums.masked / count,
        "kl_sampling": sums.kl_sampling / count,
        "kl_start": sums.kl_start / count,
    }
    return {name: value if math.isfinite(value) else 0.0 for name, value in means.items()}
