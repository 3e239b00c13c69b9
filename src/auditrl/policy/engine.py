"""The seam to trainable policies: two protocols, and what crosses them.

Judges, targets and rewards never see an engine. Tokens are recorded where they are sampled and never re-encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from ..types import Sampled, Segment

__all__ = ["AdamConfig", "LossConfig", "PolicyRef", "PolicySampler", "Sampled", "Segment", "StepMetrics", "TrainEngine"]


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Policy loss of one update: a mean over all masked tokens of the batch.

    kind: `importance_sampling` (ratio x advantage) or `ppo` (clipped, `clip_low`..`clip_high`).
    ratio_mask: tokens whose ratio lies outside are left out (None: keep all).
    kl_coef: weight of a KL penalty (k3 estimator, per token) to the starting policy; 0 switches it off and skips the extra forward.
    """

    kind: str = "ppo"
    clip_low: float = 0.8
    clip_high: float = 1.28
    ratio_mask: tuple[float, float] | None = (0.2, 5.0)
    kl_coef: float = 0.0


@dataclass(frozen=True, slots=True)
class AdamConfig:
    """Optimiser settings of one update; `lr` already carries the schedule."""

    lr: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """A policy that can be sampled: `current`, or a named snapshot."""

    name: str
    uri: str | None = None


@dataclass(slots=True)
class StepMetrics:
    """Numbers of one update: loss, mean ratio, clipped share, masked-out share, kl to sampling policy, gradient norm, tokens."""

    values: dict[str, float] = field(default_factory=dict)


class PolicySampler(Protocol):
    """Samples from one policy. Concurrent calls are batched by the engine."""

    async def sample(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        stop: Sequence[int],
        seed: int | None,
    ) -> Sampled:
        """Sample one continuation. The same (policy, prompt, seed) gives the same tokens whatever else runs beside it."""
        ...


class TrainEngine(Protocol):
    """Trains one policy and hands out samplers for it and for its snapshots."""

    async def start(self) -> None:
        """Load the starting policy."""
        ...

    async def train_step(self, segments: Sequence[Segment], *, loss: LossConfig, adam: AdamConfig) -> StepMetrics:
        """One optimiser update over all segments."""
        ...

    async def publish(self, name: str) -> PolicyRef:
        """Freeze the current weights under a name, so that a sampler of them stays valid after further updates."""
        ...

    def release(self, name: str) -> None:
        """Drop a published policy that is not sampled from any more. Unknown names are fine."""
        ...

    def sampler(self, ref: PolicyRef) -> PolicySampler:
        """Sampler of a published policy."""
        ...

    def session(self, audits: int) -> AbstractContextManager[None]:
        """Announce that so many audits are about to run together."""
        ...

    def joined(self, audit_id: str) -> AbstractAsyncContextManager[None]:
        """Entered around one audit."""
        ...

    async def save(self, path: str) -> str:
        """Write weights and optimiser state (whole, then renamed). Returns a uri for `load`."""
        ...

    async def load(self, uri: str) -> None:
        """Restore what `save` wrote, bit for bit."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...
