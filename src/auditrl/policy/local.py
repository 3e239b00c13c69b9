"""The in-process policy engine: torch and transformers, on one CPU or GPU.

One worker thread does everything that touches the model (sampling, updates, saving), so nothing here needs a lock and the event loop
stays free. Results are bit for bit the same for the same calls, machine and number of threads; on a GPU, as far as its kernels are.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch

from ..audit.context import current_audit, stable_hash
from ..errors import ConfigError, ProviderError, RunError
from .batching import Lockstep, LockstepStats
from .checkpoint import read_optimizer, read_weights, verify, write_checkpoint
from .engine import AdamConfig, LossConfig, PolicyRef, Sampled, Segment, StepMetrics
from .generate import Request, generate
from .kv import PrefixStore
from .network import Attention, LoraSettings, Method, PolicyNetwork, load_network
from .noise import torch_seed
from .optimizer import new_optimizer
from .update import update

__all__ = ["CURRENT", "TIMING_METRICS", "LocalEngine", "LocalSampler", "LoraSettings"]

logger = logging.getLogger(__name__)

CURRENT = "current"
"""Name of the policy that is being trained; any other name is a snapshot."""

TIMING_METRICS = frozenset({"seconds", "tokens_per_s"})
"""Metrics of an update that depend on the clock; all others repeat to the last digit."""


@dataclass(slots=True)
class _Snapshot:
    """A policy that can be sampled. `weights` None: whatever the network holds now."""

    weights: dict[str, torch.Tensor] | None
    prefixes: PrefixStore


@dataclass(slots=True)
class _Training:
    """What `start` makes."""

    network: PolicyNetwork
    optimizer: torch.optim.AdamW
    start: dict[str, torch.Tensor]
    """Trainable weights of the starting policy, for the KL penalty; in main memory, where they are in nobody's way."""
    policies: dict[str, _Snapshot] = field(default_factory=dict[str, _Snapshot])
    step: int = 0


class LocalEngine:
    """Trains and samples one policy in this process. Implements `TrainEngine`.

    Args:
        model: Hugging Face model folder or id; with `lora` also the folder of a PEFT adapter.
        method: `full` fine-tuning, or `lora` on all linear layers.
        lora: Shape of a new adapter.
        dtype: Of the weights: `float32`, `bfloat16`, or `auto`: bfloat16 on a GPU that computes in it, else the model's own. What is
            trained is summed in float32 all the same: an adapter is float32, and full fine-tuning keeps float32 copies.
        device: `auto` (GPU if there is one), `cpu`, `cuda`, `cuda:1`.
        gradient_checkpointing: Trade time for memory in updates.
        attention: How attention is computed; `auto` takes torch's fused kernels where the model has them.
        micro_batch_tokens: Padded tokens of one forward pass in updates.
        threads: CPU threads of torch in this process; None leaves them as they are.
        seed: Random seed of a new adapter.
        temperature: Of the sampling distribution that updates assume. Sample with the same one, so that the ratio starts at 1.
        batch_tokens: Most token positions (rows x longest prompt and reply) that are generated together; bigger batches are split.
        prefix_tokens: Token positions of past turns whose keys and values are kept for the next turn; 0 keeps none.
        patience_s: See `Lockstep`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        method: Method = "full",
        lora: LoraSettings | None = None,
        dtype: Literal["float32", "bfloat16", "auto"] = "auto",
        device: str = "auto",
        gradient_checkpointing: bool = False,
        attention: Attention = "auto",
        micro_batch_tokens: int = 16384,
        threads: int | None = None,
        seed: int = 0,
        temperature: float = 1.0,
        batch_tokens: int = 262_144,
        prefix_tokens: int = 262_144,
        patience_s: float = 120.0,
    ) -> None:
        if temperature <= 0:
            raise ConfigError(f"policy.temperature: {temperature} must be above 0: a greedy policy can't be trained. Use 1.0.")
        self.model = model
        self.method: Method = method
        self.lora = lora
        self.dtype = dtype
        self.device = device
        self.gradient_checkpointing = gradient_checkpointing
        self.attention: Attention = attention
        self.micro_batch_tokens = micro_batch_tokens
        self.threads = threads
        self.seed = seed
        self.temperature = temperature
        self.batch_tokens = batch_tokens
        self.prefix_tokens = prefix_tokens
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="policy")
        self._lockstep = Lockstep[Request, Sampled](self._generate, patience_s)
        self._loaded: _Training | None = None

    async def start(self) -> None:
        """Load the starting policy.

        Raises:
            ConfigError: The model is missing or unreadable, or does not fit the method or device.
        """
        if self._loaded is None:
            self._loaded = await self._do(self._load)

    async def train_step(self, segments: Sequence[Segment], *, loss: LossConfig, adam: AdamConfig) -> StepMetrics:
        """One AdamW update over all segments; see `update.update` for the metrics. Adds `seconds` and `tokens_per_s`.

        Raises:
            RewardError: Segments that can't be trained on (advantage not finite).
        """
        return StepMetrics(await self._do(lambda: self._update(segments, loss, adam)))

    async def publish(self, name: str) -> PolicyRef:
        """Freeze the current weights under a name (an adapter's weights only, with LoRA). A name can be published again.

        Raises:
            ConfigError: The name is that of the trained policy itself.
        """
        if name == CURRENT:
            raise ConfigError(f'"{CURRENT}" is the policy in training; publish a snapshot under another name.')
        training = self._training

        def freeze() -> None:
            training.policies[name] = self._snapshot(training.network.snapshot())

        await self._do(freeze)
        return PolicyRef(name)

    def release(self, name: str) -> None:
        """Drop a snapshot that is not sampled from any more. Unknown names are fine."""
        if name != CURRENT:
            self._training.policies.pop(name, None)

    def sampler(self, ref: PolicyRef) -> LocalSampler:
        """Sampler of the trained policy (`PolicyRef("current")`), a published snapshot, or a checkpoint (`ref.uri`).

        Raises:
            RunError: There is no such policy, or its checkpoint is damaged or of another model.
        """
        training = self._training
        if ref.name not in training.policies:
            if ref.uri is None:
                raise RunError(f'no policy was published as "{ref.name}". Publish it first, or give the uri of its checkpoint.')
            uri = Path(ref.uri)

            def read() -> _Snapshot:
                verify(uri, training.network)
                return self._snapshot(read_weights(uri, training.network))

            training.policies[ref.name] = self._worker.submit(read).result()
        return LocalSampler(self, ref.name)

    async def save(self, path: str) -> str:
        """Write a checkpoint that `transformers` (or `peft`) loads, with the optimiser's state. Returns its uri: the path.

        Raises:
            RunError: The folder can't be written.
        """
        training = self._training
        await self._do(lambda: write_checkpoint(Path(path), training.network, training.optimizer, training.step))
        return path

    async def load(self, uri: str) -> None:
        """Restore what `save` wrote, bit for bit: weights, optimiser, step. The start of the KL penalty stays the engine's own model.

        Raises:
            RunError: The checkpoint is missing, damaged, or of another method or base model.
        """
        training = self._training

        def restore() -> None:
            info = verify(Path(uri), training.network)
            training.network.set_weights(read_weights(Path(uri), training.network))
            read_optimizer(Path(uri), training.optimizer, training.network.device)
            training.step = info.step
            training.policies[CURRENT].prefixes.clear()

        await self._do(restore)

    async def close(self) -> None:
        """Release model, snapshots and the worker thread."""
        self._loaded = None
        self._worker.shutdown(wait=False)

    def session(self, audits: int) -> AbstractContextManager[None]:
        """Announce that so many audits are about to run together; see `Lockstep.session`."""
        return self._lockstep.session(audits)

    def joined(self, audit_id: str) -> AbstractAsyncContextManager[None]:
        """Entered around one audit: generation then waits for its requests, and for no longer than it lives."""
        return self._lockstep.seat(audit_id)

    def forfeit(self, audits: int = 1) -> None:
        """Give back announced audits that will not start."""
        self._lockstep.forfeit(audits)

    @property
    def step(self) -> int:
        """Updates made so far."""
        return self._training.step

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence that the model was made for."""
        return self._training.network.context_tokens

    @property
    def batching(self) -> LockstepStats:
        """What the barrier did so far."""
        return self._lockstep.stats

    @property
    def reused_tokens(self) -> int:
        """Prompt tokens that were taken from past turns instead of being computed."""
        return sum(policy.prefixes.hits for policy in self._training.policies.values())

    async def request(self, request: Request) -> Sampled:
        """Answer one request in a batch with others; the way in for samplers."""
        if not request.prompt:
            raise ProviderError("the policy was asked to continue an empty prompt. A renderer must return at least one token.")
        audit = current_audit()
        return await self._lockstep.submit(request, seat=audit.id if audit is not None else None)

    @property
    def _training(self) -> _Training:
        if self._loaded is None:
            raise ConfigError("the policy engine is not started. Call `await engine.start()` first.")
        return self._loaded

    async def _do[T](self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _snapshot(self, weights: dict[str, torch.Tensor] | None) -> _Snapshot:
        return _Snapshot(weights, PrefixStore(self.prefix_tokens))

    def _load(self) -> _Training:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        network = load_network(
            self.model,
            method=self.method,
            lora=self.lora,
            dtype=self.dtype,
            device=self.device,
            gradient_checkpointing=self.gradient_checkpointing,
            attention=self.attention,
            seed=self.seed,
        )
        training = _Training(network, new_optimizer(network), network.snapshot(torch.device("cpu")))
        training.policies[CURRENT] = self._snapshot(None)
        return training

    def _update(self, segments: Sequence[Segment], loss: LossConfig, adam: AdamConfig) -> dict[str, float]:
        training = self._training
        began = time.perf_counter()
        # dropout and gradient checkpointing exist in training mode only; the random state is set by step, so that a resumed run repeats it
        training.network.model.train()
        try:
            with torch_seed(stable_hash(self.seed, "update", training.step)):
                metrics = update(
                    training.network,
                    training.optimizer,
                    segments,
                    loss=loss,
                    adam=adam,
                    temperature=self.temperature,
                    micro_batch_tokens=self.micro_batch_tokens,
                    start={n: w.to(training.network.device) for n, w in training.start.items()} if loss.kl_coef else None,
                )
        finally:
            training.network.model.eval()
        training.step += 1
        training.policies[CURRENT].prefixes.clear()
        seconds = time.perf_counter() - began
        return {**metrics, "seconds": seconds, "tokens_per_s": metrics["tokens"] / seconds}

    async def _generate(self, requests: Sequence[Request]) -> list[Sampled]:
        return await self._do(lambda: self._generate_now(requests))

    def _generate_now(self, requests: Sequence[Request]) -> list[Sampled]:
        training = self._training
        order = sorted(range(len(requests)), key=lambda i: requests[i].order)
        results: dict[int, Sampled] = {}
        for name, indices in groupby(order, key=lambda i: requests[i].policy):
            policy = training.policies.get(name)
            if policy is None:
                raise ProviderError(f'the snapshot "{name}" was released while it was sampled. Release it after its audits have ended.')
            with training.network.using(policy.weights):
                for part in _split([*indices], requests, self.batch_tokens):
                    samples = generate(training.network, [requests[i] for i in part], policy.prefixes if self.prefix_tokens else None)
                    results.update(zip(part, samples, strict=True))
        return [results[i] for i in range(len(requests))]


def _split(indices: list[int], requests: Sequence[Request], budget_tokens: int) -> list[list[int]]:
    """Cut a batch where rows x longest would exceed the budget."""
    parts: list[list[int]] = [[]]
    longest = 0
    for i in indices:
        length = len(requests[i].prompt) + requests[i].max_tokens
        if parts[-1] and max(longest, length) * (len(parts[-1]) + 1) > budget_tokens:
            parts.append([])
            longest = 0
        parts[-1].append(i)
        longest = max(longest, length)
    return parts


@dataclass(frozen=True, slots=True)
class LocalSampler:
    """Samples from one policy of an engine. Implements `PolicySampler`."""

    engine: LocalEngine
    policy: str

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence that the model was made for."""
        return self.engine.context_tokens

    async def sample(self, prompt: Sequence[int], *, max_tokens: int, temperature: float, stop: Sequence[int], seed: int | None) -> Sampled:
        """Sample one continuation; a stop token is part of it. `seed` None draws a fresh one. See `PolicySampler.sample`.

        Log-probabilities are those of the sampling distribution; at temperature 0 (greedy), those at temperature 1.
        """
        audit = current_audit()
        return await self.engine.request(
            Request(
                policy=self.policy,
                prompt=tuple(prompt),
                max_tokens=max_tokens,
                temperature=temperature,
                stop=frozenset(stop),
                seed=secrets.randbits(63) if seed is None else seed,
                key=audit.id if audit is not None else "",
            )
        )
