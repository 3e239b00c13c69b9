"""One optimiser update over a batch of segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from ..errors import RewardError
from .engine import AdamConfig, LossConfig, Segment
from .losses import LossSums, policy_loss
from .microbatch import MicroBatch, micro_batches
from .network import PolicyNetwork, Weights

__all__ = ["new_optimizer", "update"]


def new_optimizer(network: PolicyNetwork) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; each update sets its learning rate and the rest."""
    return torch.optim.AdamW(list(network.trainable.values()), lr=0.0, fused=network.device.type in ("cpu", "cuda"))


def check_segments(segments: Sequence[Segment]) -> None:
    """Refuse what would train on nonsense.

    Raises:
        RewardError: An advantage is not finite, lengths differ, or a sampled token has nothing before it.
    """
    for segment in segments:
        if not math.isfinite(segment.advantage):
            raise RewardError(
                f"audit {segment.audit_id or '?'}: its advantage is {segment.advantage}. A reward design must return finite numbers."
            )
        if not len(segment.tokens) == len(segment.mask) == len(segment.logprobs):
            raise RewardError(f"audit {segment.audit_id or '?'}: tokens, mask and logprobs of a segment differ in length.")
        if segment.mask and segment.mask[0]:
            raise RewardError(f"audit {segment.audit_id or '?'}: a segment starts with a sampled token; its prompt is missing.")


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
        sums.add(part_sums)
        value += part
        if not math.isfinite(value):
            break
    norm = _clipped_norm(network, adam.grad_clip)
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


def _clipped_norm(network: PolicyNetwork, limit: float) -> float:
    parameters = [p for p in network.trainable.values() if p.grad is not None]
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit)) if parameters else 0.0


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
