"""The policy engine behind the Tinker API: Thinking Machines' hosted service, or one's own SkyRL server.

Weights, optimiser and sampling live at the server; here are tokens, losses and names. The policy is a LoRA adapter. What is different
between servers stands in `tinker_server`, what they are sent for an update in `tinker_loss`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, ProviderError, RunError
from .engine import AdamConfig, LossConfig, PolicyRef, Sampled, Segment, StepMetrics
from .segments import check_segments
from .tinker_checkpoint import TinkerCheckpoint, read_checkpoint, state_of, write_checkpoint
from .tinker_loss import token_loss, trained_only, trained_tokens, weights_for
from .tinker_remote import Frozen, Remote
from .tinker_server import ServerKind, connect

__all__ = ["CURRENT", "TinkerEngine", "TinkerSampler", "context_of"]

logger = logging.getLogger(__name__)

CURRENT = "current"
"""Name of the policy that is being trained; any other name is a snapshot."""


@dataclass(slots=True)
class _Training:
    """What `start` makes."""

    remote: Remote
    adapter: Any = None
    """The SDK's `TrainingClient`; made when it is first needed, because a state can only be loaded into a new one."""
    sampler: Any = None
    """Of the weights in training; None after an update."""
    snapshots: dict[str, Frozen] = field(default_factory=dict[str, Frozen])
    retired: list[Frozen] = field(default_factory=list[Frozen])
    """Released snapshots that the server still holds."""
    step: int = 0


class TinkerEngine:
    """Trains and samples one LoRA policy at a Tinker server. Implements `TrainEngine`.

    Results repeat as far as the server's do: requests carry seeds, but it is the server that makes batches of them.

    Args:
        base_model: The server's name of the model.
        server: Which kind of server it is; see `tinker_server`.
        base_url: Its address; None: the hosted service (or `TINKER_BASE_URL`).
        rank: Of the adapter. Its alpha is the server's (SkyRL 0.4: 32).
        seed: Random seed of a new adapter.
        temperature: Of sampling. Servers train and tell log-probabilities at temperature 1, so it must be 1.
        context_tokens: Longest sequence; None: what the server tells, if it does.
        patience_s: Seconds without any sign of the server after which the run stops, resumable.
    """

    def __init__(
        self,
        base_model: str,
        *,
        server: ServerKind = "tinker",
        base_url: str | None = None,
        rank: int = 32,
        seed: int = 0,
        temperature: float = 1.0,
        context_tokens: int | None = None,
        patience_s: float = 300.0,
    ) -> None:
        if temperature != 1.0:
            raise ConfigError(f"policy.temperature: {temperature} must be 1.0: a Tinker server trains at temperature 1. Set it to 1.0.")
        self.base_model = base_model
        self.server: ServerKind = server
        self.base_url = base_url
        self.rank = rank
        self.seed = seed
        self.patience_s = patience_s
        self._context_tokens = context_tokens
        self._loaded: _Training | None = None
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        """Open a session and look whether the server has the model. The adapter is made when it is first needed.

        Raises:
            ConfigError: No SDK or another version than the server takes, no key or a refused one, no Tinker server at the address, or one
                without the model.
            ProviderError: Nothing answers.
        """
        if self._loaded is None:
            connection = await asyncio.to_thread(connect, self.server, self.base_url, self.base_model)
            self._loaded = _Training(Remote(connection, self.server, self.base_model, self.rank, self.seed, self.patience_s))
            if not self._loaded.remote.traits.clips:
                logger.warning("%s does not clip gradients as it is asked to: train.grad_clip has no effect there", connection.address)

    async def train_step(self, segments: Sequence[Segment], *, loss: LossConfig, adam: AdamConfig) -> StepMetrics:
        """One AdamW update over all segments, with the mean of `losses.policy_loss` over all trained tokens.

        Without `loss.ratio_mask` and `loss.kl_coef` the server's own loss does it in one pass; otherwise it takes a forward pass more.

        Returns:
            The metrics of `update.update`, `seconds` and `tokens_per_s`; `grad_norm` if the server tells it.

        Raises:
            RewardError: Segments that can't be trained on.
            ConfigError: The server can't do what is asked, or is of another kind than the config says.
            ProviderError: The server failed, or its own loss was not finite: resume from the last checkpoint.
        """
        check_segments(segments)
        if adam.weight_decay and self.server != "tinker":
            raise ConfigError(
                "train.weight_decay: SkyRL would decay every adapter that it holds, snapshots too (JAX), or leaves it out (others). Set it to 0."
            )
        began = time.perf_counter()
        batch = trained_only(segments)
        found = await self._update(batch, loss, adam) if batch else {"loss": 0.0, "grad_norm": 0.0}
        seconds, tokens = time.perf_counter() - began, float(sum(len(s.tokens) for s in segments))
        counts = {"tokens": tokens, "trained_tokens": float(sum(sum(s.mask) for s in batch)), "skipped": float(not batch)}
        return StepMetrics({**counts, **found, "seconds": seconds, "tokens_per_s": tokens / seconds})

    async def publish(self, name: str) -> PolicyRef:
        """Freeze the current weights under a name. A name can be published again.

        Raises:
            ConfigError: The name is that of the trained policy itself.
            ProviderError: The server failed, or has no room for another adapter.
        """
        if name == CURRENT:
            raise ConfigError(f'"{CURRENT}" is the policy in training; publish a snapshot under another name.')
        training = self._training
        await self._clear_away()
        frozen = await training.remote.freeze(await self._adapter(), name)
        self.release(name)
        training.snapshots[name] = frozen
        return PolicyRef(name)

    def release(self, name: str) -> None:
        """Drop a snapshot that is not sampled from any more; the server frees it with the next one. Unknown names are fine."""
        frozen = self._training.snapshots.pop(name, None)
        if frozen is not None:
            self._training.retired.append(frozen)

    def sampler(self, ref: PolicyRef) -> TinkerSampler:
        """Sampler of the trained policy (`PolicyRef("current")`), a published snapshot, or a checkpoint (`ref.uri`).

        Raises:
            RunError: There is no such policy, or its checkpoint is damaged or of another model.
        """
        state = None
        if ref.name != CURRENT and ref.name not in self._training.snapshots:
            if ref.uri is None:
                raise RunError(f'no policy was published as "{ref.name}". Publish it first, or give the uri of its checkpoint.')
            state = read_checkpoint(Path(ref.uri), self.base_model, self.rank).uri
        return TinkerSampler(self, ref.name, state)

    async def save(self, path: str) -> str:
        """Save weights and optimiser at the server, and a folder that names them. Returns its uri: the path.

        A state that the folder named before is deleted at the server.

        Raises:
            RunError: The folder can't be written.
            ProviderError: The server failed.
        """
        training, folder = self._training, Path(path)
        state = await training.remote.save_state(await self._adapter(), folder.name)
        before = state_of(folder)
        write_checkpoint(folder, TinkerCheckpoint(self.base_model, self.server, self.rank, training.step, state))
        if before is not None:
            await training.remote.delete(before)
        return path

    async def load(self, uri: str) -> None:
        """Go on from what `save` wrote: weights, optimiser, step. The server loads it into a new adapter.

        Raises:
            RunError: The checkpoint is missing, damaged, of another engine, model or rank, or no longer at the server.
            ProviderError: The server failed.
        """
        training, info = self._training, read_checkpoint(Path(uri), self.base_model, self.rank)
        before = training.adapter
        training.adapter = await training.remote.new_adapter(info.uri)
        training.sampler, training.step = None, info.step
        if before is not None:
            await training.remote.unload(before.model_id)

    async def close(self) -> None:
        """Give back what snapshots and the adapter hold at the server, if it still answers. Saved states stay."""
        training, self._loaded = self._loaded, None
        if training is not None:
            held = [*training.retired, *training.snapshots.values()]
            if training.adapter is not None:
                held.append(Frozen(training.sampler, adapter=training.adapter.model_id))
            await training.remote.give_back(held)

    def session(self, audits: int) -> AbstractContextManager[None]:
        """Nothing to announce: the server batches requests as they come."""
        return nullcontext()

    def joined(self, audit_id: str) -> AbstractAsyncContextManager[None]:
        """Nothing to join; see `session`."""
        return nullcontext()

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self._training.step

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence, if it is known."""
        return self._context_tokens if self._context_tokens is not None else self._training.remote.connection.context_tokens

    async def sample(self, policy: str, state: str | None, prompt: Sequence[int], **settings: Any) -> Sampled:
        """One continuation by a policy; the way in for samplers.

        Raises:
            ProviderError: The prompt is empty, the snapshot was released, or the server failed.
        """
        if not prompt:
            raise ProviderError("the policy was asked to continue an empty prompt. A renderer must return at least one token.")
        return await self._training.remote.sample(await self._sampler(policy, state), prompt, **settings)

    @property
    def _training(self) -> _Training:
        if self._loaded is None:
            raise ConfigError("the policy engine is not started. Call `await engine.start()` first.")
        return self._loaded

    async def _adapter(self) -> Any:
        training = self._training
        async with self._opening:
            if training.adapter is None:
                training.adapter = await training.remote.new_adapter()
        return training.adapter

    async def _sampler(self, policy: str, state: str | None) -> Any:
        """The SDK's sampling client of a policy. That of the weights in training is renewed after an update, once for all that ask."""
        training = self._training
        adapter = await self._adapter() if policy == CURRENT else None
        async with self._opening:
            if policy == CURRENT:
                if training.sampler is None:
                    training.sampler = await training.remote.sampler(adapter)
                return training.sampler
            if policy not in training.snapshots:
                if state is None:
                    raise ProviderError(
                        f'the snapshot "{policy}" was released while it was sampled. Release it after its audits have ended.'
                    )
                training.snapshots[policy] = await training.remote.from_state(state)
            return training.snapshots[policy].sampler

    async def _update(self, batch: list[Segment], loss: LossConfig, adam: AdamConfig) -> dict[str, float]:
        training, adapter = self._training, await self._adapter()
        remote, reduction = training.remote, training.remote.traits.reduction
        drawn = [s.logprobs[1:] for s in batch]
        sampling = trained_tokens(batch, drawn)
        advantages = np.repeat([s.advantage for s in batch], [sum(s.mask) for s in batch])
        training.sampler = None
        if loss.ratio_mask is None and not loss.kl_coef:
            settings = {"clip_low_threshold": loss.clip_low, "clip_high_threshold": loss.clip_high} if loss.kind == "ppo" else None
            data = remote.data(batch, drawn, weights_for(batch, -advantages / len(advantages), reduction))
            rows, told = await remote.update(adapter, data, batch, loss.kind, settings, adam)
            found = token_loss(trained_tokens(batch, rows), sampling, advantages, loss)
        else:
            rows = await remote.forward(adapter, batch)
            start = trained_tokens(batch, await remote.base_logprobs(batch)) if loss.kl_coef else None
            found = token_loss(trained_tokens(batch, rows), sampling, advantages, loss, start)
            if not math.isfinite(found.value):
                return {"loss": 0.0, "grad_norm": 0.0, "skipped": 1.0}
            data = remote.data(batch, rows, weights_for(batch, found.gradient, reduction))
            _, told = await remote.update(adapter, data, batch, "importance_sampling", None, adam)
        if not math.isfinite(found.value):
            raise ProviderError("the loss of the update is not finite. Lower train.lr, then `auditrl resume` from the last checkpoint")
        training.step += 1
        norm = next((value for key, value in told.items() if "grad_norm" in key and "mhc" not in key), None)
        return {"loss": found.value, **found.metrics, **({} if norm is None else {"grad_norm": norm})}

    async def _clear_away(self) -> None:
        training = self._training
        retired, training.retired = training.retired, []
        await training.remote.give_back(retired)


@dataclass(frozen=True, slots=True)
class TinkerSampler:
    """Samples from one policy of an engine. Implements `PolicySampler`. `state`: where a policy that was not published is read from."""

    engine: TinkerEngine
    policy: str
    state: str | None = None

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence, if it is known."""
        return self.engine.context_tokens

    async def sample(self, prompt: Sequence[int], *, max_tokens: int, temperature: float, stop: Sequence[int], seed: int | None) -> Sampled:
        """Sample one continuation; a stop token is part of it. `seed` None draws a fresh one. See `PolicySampler.sample`.

        Log-probabilities are those at temperature 1, whatever the temperature.
        """
        return await self.engine.sample(
            self.policy,
            self.state,
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            stop=stop,
            seed=secrets.randbits(31) if seed is None else seed,
        )


def context_of(folder: str | Path) -> int | None:
    """Longest sequence by the `config.json` of a model folder; None for a model id, or a folder that does not say."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    length = config.get("max_position_embeddings")
    return length if isinstance(length, int) else None
