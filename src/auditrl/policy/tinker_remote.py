"""What the Tinker engine does at the server: adapters, states, samplers, and what is given back."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, ProviderError, RunError
from ..types import Sampled, Segment
from .engine import AdamConfig
from .tinker_loss import Floats, to_datum
from .tinker_server import TRAITS, Connection, Pulse, ServerKind, post

__all__ = ["Frozen", "Remote"]

logger = logging.getLogger(__name__)

_GIVE_BACK_S = 30.0
"""Seconds for freeing something at the server; nothing depends on it."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """A policy that no update changes, and what it holds at the server."""

    sampler: Any
    """The SDK's `SamplingClient`."""
    path: str | None = None
    """Sampler weights that were saved for it."""
    adapter: str | None = None
    """Id of an adapter that was made for it."""


class Remote:
    """One session at a server.

    Args:
        connection: The open session.
        server: Kind of server.
        base_model: The server's name of the model.
        rank: Of new adapters.
        seed: Random seed of new adapters.
        patience_s: See `Pulse`.
    """

    def __init__(self, connection: Connection, server: ServerKind, base_model: str, rank: int, seed: int, patience_s: float) -> None:
        self.connection = connection
        self.traits = TRAITS[server]
        self.server = server
        self.base_model = base_model
        self.rank = rank
        self.seed = seed
        self._pulse = Pulse(connection.address, connection.key, patience_s)
        self._types: Any = connection.tinker.types
        self._base: Any = None

    async def wait[T](self, answer: Awaitable[T], doing: str) -> T:
        """See `Pulse.wait`."""
        return await self._pulse.wait(answer, doing)

    async def new_adapter(self, state: str | None = None, *, optimizer: bool = True) -> Any:
        """A new adapter (the SDK's `TrainingClient`), at its start or with a saved state.

        Raises:
            RunError: The server no longer has the state.
            ProviderError: The server failed, or has no room for another adapter.
        """
        service = self.connection.service
        # the output layer stays out, as in the local engine; SkyRL 0.4 never trains it
        made = service.create_lora_training_client_async(base_model=self.base_model, rank=self.rank, seed=self.seed, train_unembed=False)
        adapter = await self.wait(made, "making an adapter")
        if state is not None:
            load = adapter.load_state_with_optimizer if optimizer else adapter.load_state
            try:
                await self.wait(load(state), "loading a checkpoint")
            except ProviderError as error:
                await self.unload(adapter.model_id)
                if getattr(error.__cause__, "status_code", None) == 404:
                    raise RunError(
                        f"{self.connection.address} no longer has {state}. Start the server with the database and the checkpoint folder that "
                        "it had, or resume from an earlier checkpoint."
                    ) from error
                raise
        return adapter

    async def save_state(self, adapter: Any, name: str) -> str:
        """Save weights and optimiser under a new name; returns where."""
        return str((await self.wait(adapter.save_state(_unique(name)), "saving a checkpoint")).path)

    async def sampler(self, adapter: Any) -> Any:
        """A sampler of an adapter's current weights."""
        return await self.wait(adapter.save_weights_and_get_sampling_client_async(), "handing weights to the sampler")

    async def freeze(self, adapter: Any, name: str) -> Frozen:
        """A sampler of an adapter's current weights that stays valid when the adapter is trained on."""
        if self.traits.twins:
            state = await self.save_state(adapter, name)
            frozen = await self.from_state(state)
            await self.delete(state)
            return frozen
        path = str((await self.wait(adapter.save_weights_for_sampler(_unique(name)), "saving a snapshot")).path)
        opened = self.connection.service.create_sampling_client_async(model_path=path)
        return Frozen(await self.wait(opened, "opening a snapshot"), path=path)

    async def from_state(self, state: str) -> Frozen:
        """A sampler of a saved state."""
        twin = await self.new_adapter(state, optimizer=False)
        return Frozen(await self.sampler(twin), adapter=twin.model_id)

    async def base_logprobs(self, segments: Sequence[Segment]) -> list[list[float]]:
        """Log-probabilities of each segment's targets under the base model: that of the start, whose adapter changes nothing."""
        if self._base is None:
            opened = self.connection.service.create_sampling_client_async(base_model=self.base_model)
            self._base = await self.wait(opened, "opening the base model")
        prompts = [self._types.ModelInput.from_ints(list(s.tokens)) for s in segments]
        answers = asyncio.gather(*(self._base.compute_logprobs_async(prompt) for prompt in prompts))
        rows = await self.wait(answers, "reading log-probabilities of the base model")
        # the hosted service puts a None in front for the first token, SkyRL leaves it out
        return [[float(value) for value in row[len(row) - len(s.tokens) + 1 :]] for s, row in zip(segments, rows, strict=True)]

    async def forward(self, adapter: Any, segments: Sequence[Segment]) -> list[list[float]]:
        """Log-probabilities of each segment's targets under the adapter."""
        data = self.data(segments, [s.logprobs[1:] for s in segments], [[0.0] * (len(s.tokens) - 1) for s in segments])
        return _logprobs(await self.wait(adapter.forward(data, "importance_sampling"), "reading log-probabilities"), segments)

    async def update(
        self, adapter: Any, data: list[Any], segments: Sequence[Segment], loss: str, settings: dict[str, float] | None, adam: AdamConfig
    ) -> tuple[list[list[float]], dict[str, float]]:
        """Gradient and optimiser step, sent together. Returns the log-probabilities before the update, and the optimiser's metrics.

        Raises:
            ConfigError: The server is not of the kind that the config says.
        """
        gradient = adapter.forward_backward(data, loss, settings)
        step = adapter.optim_step(
            self._types.AdamParams(
                learning_rate=adam.lr,
                beta1=adam.beta1,
                beta2=adam.beta2,
                eps=adam.eps,
                weight_decay=adam.weight_decay,
                grad_clip_norm=adam.grad_clip if self.traits.clips else 0.0,
            )
        )
        before = _logprobs(await self.wait(gradient, "computing the gradient"), segments)
        metrics = dict((await self.wait(step, "updating the weights")).metrics or {})
        if self.server == "tinker" and any(key.startswith("skyrl") for key in metrics):
            raise ConfigError(
                f'policy.tinker.server = "tinker", but {self.connection.address} is SkyRL, which adds tokens up in another way. '
                'Set it to "skyrl-jax" (JAX backend) or "skyrl" (FSDP, Megatron), and start a new run.'
            )
        return before, metrics

    def data(
        self, segments: Sequence[Segment], logprobs: Sequence[Sequence[float]], advantages: Sequence[Sequence[float] | Floats]
    ) -> list[Any]:
        """Segments as the SDK's `Datum`s; rows run over each segment's targets."""
        rows = zip(segments, logprobs, advantages, strict=True)
        return [to_datum(self._types, s, p, [float(a) for a in advantage], mask=self.traits.masks) for s, p, advantage in rows]

    async def sample(
        self, sampler: Any, prompt: Sequence[int], *, max_tokens: int, temperature: float, stop: Sequence[int], seed: int
    ) -> Sampled:
        """One continuation.

        Raises:
            ProviderError: The server failed, or gave tokens without log-probabilities.
        """
        # SkyRL's JAX backend takes 32 bits
        settings = self._types.SamplingParams(max_tokens=max_tokens, temperature=temperature, stop=list(stop), seed=seed % (2**31 - 1))
        answer = await self.wait(sampler.sample_async(self._types.ModelInput.from_ints(list(prompt)), 1, settings), "sampling")
        sequence = answer.sequences[0]
        tokens, logprobs = [int(t) for t in sequence.tokens], [float(p) for p in sequence.logprobs or ()]
        if len(tokens) != len(logprobs):
            raise ProviderError(f"sampling: {self.connection.address} gave {len(tokens)} tokens and {len(logprobs)} log-probabilities.")
        return Sampled(tokens, logprobs, "stop" if sequence.stop_reason == "stop" else "length")

    async def give_back(self, held: Sequence[Frozen]) -> None:
        """Free what policies hold at the server, for as long as it answers."""
        try:
            async with asyncio.timeout(_GIVE_BACK_S):
                for frozen in held:
                    if frozen.path is not None:
                        await self.delete(frozen.path)
                    if frozen.adapter is not None:
                        await self.unload(frozen.adapter)
        except TimeoutError:
            logger.warning("%s does not answer: what the run held there is freed when its session ends", self.connection.address)

    async def delete(self, state: str) -> None:
        """Delete what was saved. A server that does not do it loses disk space and nothing else."""
        try:
            # left alone, the SDK asks a dead server for five minutes
            async with asyncio.timeout(_GIVE_BACK_S):
                await self.connection.service.create_rest_client().delete_checkpoint_from_tinker_path_async(state)
        except Exception as error:
            logger.warning("%s is left at the server: %s", state, error)

    async def unload(self, adapter: str) -> None:
        """Free an adapter of one's own server, which has room for a fixed number; otherwise they live until the session ends."""
        if self.traits.twins:
            try:
                await asyncio.to_thread(post, self.connection.address, "unload_model", {"model_id": adapter, "type": "unload_model"})
            except OSError as error:
                logger.warning("the adapter %s is left at the server: %s", adapter, error)


def _unique(name: str) -> str:
    """A name that no earlier save took: servers refuse one that is taken, and a resumed run saves the same steps again."""
    return f"{re.sub(r'[^A-Za-z0-9_-]', '-', name)[:100]}-{secrets.token_hex(4)}"


def _logprobs(answer: Any, segments: Sequence[Segment]) -> list[list[float]]:
    rows = [[float(value) for value in output["logprobs"].data] for output in answer.loss_fn_outputs]
    if [len(row) for row in rows] != [len(s.tokens) - 1 for s in segments]:
        raise ProviderError("the server's log-probabilities don't match the tokens that it was sent. See its version and log.")
    return rows
