"""Policy losses over single tokens, and what is measured beside them.

With p = exp(logprob) under the policy that is trained, q the same under the policy that sampled, r = p/q the ratio and A the advantage
of the token's segment, a token costs

- `importance_sampling`: -r A
- `ppo`: -min(r A, clip(r, clip_low, clip_high) A)

A token whose ratio lies outside `ratio_mask` costs nothing (it still counts in the mean). `kl_coef` adds its multiple of the k3
estimate of KL(policy || start): s/p - log(s/p) - 1 with s the start's probability (Schulman 2020), for every token.

The batch's loss is the mean over all tokens that the policy produced, whatever segment they belong to (a long audit weighs more than
a short one; Rosu & Wang 2026 do not publish their reduction).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from ..errors import ConfigError
from .engine import LossConfig

__all__ = ["LossSums", "policy_loss"]


@dataclass(slots=True)
class LossSums:
    """Sums over tokens, to be divided by their number; `ratio_max` is a maximum."""

    tokens: int = 0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float = 0.0
    """Tokens whose gradient the clip removed."""
    masked: float = 0.0
    """Tokens whose ratio lies outside the mask."""
    kl_sampling: float = 0.0
    """k3 estimate of KL(sampling policy || policy)."""
    kl_start: float = 0.0

    def add(self, other: LossSums) -> None:
        """Include the tokens of another part of the batch."""
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, theirs) if field.name == "ratio_max" else mine + theirs)


def policy_loss(
    logprobs: torch.Tensor,
    sampling: torch.Tensor,
    advantages: torch.Tensor,
    config: LossConfig,
    *,
    start: torch.Tensor | None = None,
) -> tuple[torch.Tensor, LossSums]:
    """Summed loss of N tokens.

    Args:
        logprobs: Under the policy that is trained, shape (N,), with gradient.
        sampling: Under the policy that sampled, shape (N,).
        advantages: Shape (N,).
        config: Which loss.
        start: Under the starting policy, shape (N,); needed if `config.kl_coef` is not 0.

    Returns:
        The sum over tokens (a scalar; divide by the whole batch's number of tokens), and what was measured.

    Raises:
        ConfigError: The loss is unknown, or `start` is missing.
    """
    # e^20 lies outside every sensible mask; without the bound one absurd token would turn the whole gradient into NaN
    log_ratio = (logprobs - sampling).clamp(-20, 20)
    ratio = log_ratio.exp()
    gain = ratio * advantages
    if config.kind == "ppo":
        clipped_gain = ratio.clamp(config.clip_low, config.clip_high) * advantages
        clipped = clipped_gain < gain
        gain = torch.minimum(gain, clipped_gain)
    elif config.kind == "importance_sampling":
        clipped = torch.zeros_like(gain, dtype=torch.bool)
    else:
        raise ConfigError(f'train.loss.kind: there is no loss "{config.kind}". Use "ppo" or "importance_sampling".')
    outside = torch.zeros_like(clipped)
    if config.ratio_mask is not None:
        low, high = config.ratio_mask
        outside = (ratio < low) | (ratio > high)
        gain = torch.where(outside, 0.0, gain)
    loss = -gain.sum()
    kl_start = 0.0
    if config.kl_coef:
        if start is None:
            raise ConfigError("train.loss.kl_coef is set, but the engine gave no log-probabilities of the starting policy.")
        log_back = start - logprobs
        kl = (log_back.exp() - log_back - 1).sum()
        loss = loss + config.kl_coef * kl
        kl_start = float(kl.detach())
    with torch.no_grad():
        sums = LossSums(
            tokens=logprobs.shape[0],
            ratio=float(ratio.sum()),
            ratio_max=float(ratio.max()) if len(ratio) else 0.0,
            clipped=float((clipped & ~outside).sum()),
            masked=float(outside.sum()),
            kl_sampling=float((ratio - 1 - log_ratio).sum()),
            kl_start=kl_start,
        )
    return loss, sums
