"""What a Tinker server is sent for an update: the policy loss of `losses.py` as per-token weights, and tokens as it wants them.

A server has losses of its own, but no ratio mask and no KL penalty, and each has another reduction. So the engine asks for the
log-probabilities first, takes the gradient of our own loss with respect to them here, and sends `importance_sampling` with the
log-probabilities that the server just gave: the ratio is then 1, and the gradient of -ratio x weight is the weight. The update is
that of the local engine, whatever the server's reduction. Torch is not needed.

Shapes: N trained tokens of the batch in the order of its segments, S segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..types import Segment
from .engine import LossConfig

__all__ = ["Floats", "Reduction", "TokenLoss", "to_datum", "token_loss", "trained_only", "trained_tokens", "weights_for"]

Floats = NDArray[np.float64]
Reduction = Literal["sum", "sequence_mean"]
"""How a server adds tokens up: over the whole batch, or the mean of every segment's mean over its trained tokens (SkyRL's JAX backend)."""

_FURTHEST = 20.0
"""Log-ratios are cut here, as in `losses.policy_loss`."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The mean loss of a batch, its gradient, and what is measured beside it."""

    value: float
    gradient: Floats
    """With respect to each log-probability, shape (N,)."""
    metrics: dict[str, float]


def token_loss(logprobs: Floats, sampling: Floats, advantages: Floats, config: LossConfig, start: Floats | None = None) -> TokenLoss:
    """The loss of `losses.policy_loss`, averaged over the batch, and its gradient.

    Args:
        logprobs: Under the policy that is trained, shape (N,).
        sampling: Under the policy that sampled, shape (N,).
        advantages: Shape (N,).
        config: Which loss.
        start: Under the starting policy, shape (N,); needed if `config.kl_coef` is not 0.
    """
    count = max(1, len(logprobs))
    distance = logprobs - sampling
    log_ratio = np.clip(distance, -_FURTHEST, _FURTHEST)
    ratio = np.exp(log_ratio)
    gain = ratio * advantages
    clipped = np.zeros(len(ratio), dtype=bool)
    if config.kind == "ppo":
        bounded = np.clip(ratio, config.clip_low, config.clip_high) * advantages
        clipped = bounded < gain
        gain = np.minimum(gain, bounded)
    outside = np.zeros(len(ratio), dtype=bool)
    if config.ratio_mask is not None:
        outside = (ratio < config.ratio_mask[0]) | (ratio > config.ratio_mask[1])
    silent = clipped | outside | (np.abs(distance) > _FURTHEST)
    total = -float(np.where(outside, 0.0, gain).sum())
    gradient = np.where(silent, 0.0, -ratio * advantages)
    metrics = {
        "ratio_mean": float(ratio.sum()) / count,
        "ratio_max": float(ratio.max(initial=0.0)),
        "clip_share": float((clipped & ~outside).sum()) / count,
        "masked_share": float(outside.sum()) / count,
        "kl_sampling": float((ratio - 1 - log_ratio).sum()) / count,
    }
    if config.kl_coef and start is not None:
        back = np.exp(start - logprobs)
        penalty = float((back - (start - logprobs) - 1).sum())
        total += config.kl_coef * penalty
        gradient = gradient + config.kl_coef * (1 - back)
        metrics["kl_start"] = penalty / count
    return TokenLoss(total / count, gradient / count, metrics)


def trained_only(segments: Sequence[Segment]) -> list[Segment]:
    """Segments that hold a trained token, cut behind the last one: what follows it changes no gradient."""
    kept: list[Segment] = []
    for segment in segments:
        if any(segment.mask):
            end = len(segment.mask) - segment.mask[::-1].index(1)
            kept.append(
                Segment(
                    segment.tokens[:end],
                    segment.mask[:end],
                    segment.logprobs[:end],
                    advantage=segment.advantage,
                    audit_id=segment.audit_id,
                    group=segment.group,
                )
            )
    return kept


def trained_tokens(segments: Sequence[Segment], values: Sequence[Sequence[float]]) -> Floats:
    """One number a token of each segment's targets (its tokens but the first) -> those of the trained tokens, shape (N,)."""
    parts = [np.asarray(row, dtype=float)[np.asarray(s.mask[1:], dtype=bool)] for s, row in zip(segments, values, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0)


def weights_for(segments: Sequence[Segment], gradient: Floats, reduction: Reduction) -> list[Floats]:
    """Advantages that give the gradient of the mean over all tokens under a server's reduction: one array a segment, over its targets.

    `gradient` has shape (N,), as `token_loss` gives it. Zero where nothing is trained.
    """
    rows: list[Floats] = []
    done = 0
    for segment in segments:
        places = np.flatnonzero(np.asarray(segment.mask[1:]))
        row = np.zeros(len(segment.tokens) - 1)
        row[places] = -gradient[done : done + len(places)]
        if reduction == "sequence_mean":
            row *= len(segments) * len(places)
        rows.append(row)
        done += len(places)
    return rows


def to_datum(types: Any, segment: Segment, logprobs: Sequence[float], advantages: Sequence[float], *, mask: bool) -> Any:
    """One segment as the SDK's `Datum`: inputs are its tokens but the last, targets its tokens but the first.

    `logprobs` and `advantages` run over the targets. `mask` sends the segment's mask as `weights`, for servers that divide by their sum.
    """
    inputs: dict[str, Any] = {
        "target_tokens": np.asarray(segment.tokens[1:], dtype=np.int64),
        "logprobs": np.asarray(logprobs, dtype=np.float32),
        "advantages": np.asarray(advantages, dtype=np.float32),
    }
    if mask:
        inputs["weights"] = np.asarray(segment.mask[1:], dtype=np.float32)
    return types.Datum(model_input=types.ModelInput.from_ints(list(segment.tokens[:-1])), loss_fn_inputs=inputs)
