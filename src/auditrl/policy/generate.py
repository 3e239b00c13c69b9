"""Batched decoding: requests of one policy -> samples, with their log-probabilities.

What makes it fast on short turns of a small model: a group's equal prompts are computed once; a turn that continues an audit computes
only what is new; finished rows leave the batch; caches are written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..errors import ProviderError
from ..types import Sampled
from .kv import BufferCache, DecodeCache, Prefix, PrefixStore, StockCache, as_key, gathered
from .network import PolicyNetwork
from .noise import draw, numbers, uniforms

__all__ = ["Request", "generate"]

_RESERVE = 256
"""New tokens that a cache has room for at once; it grows beyond."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a sampler."""

    policy: str
    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    stop: frozenset[int]
    seed: int
    key: str = ""
    """The audit that asks; orders the requests of a batch."""

    @property
    def order(self) -> tuple[str, str, int, tuple[int, ...]]:
        """Place in a batch: never the time of arrival."""
        return (self.policy, self.key, self.seed, self.prompt)


@dataclass(slots=True)
class _Row:
    """A request in work."""

    request: Request
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    stop_reason: Literal["stop", "length"] | None = None

    def take(self, token: int, logprob: float) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.request.stop:
            self.stop_reason = "stop"
        elif len(self.tokens) >= self.request.max_tokens:
            self.stop_reason = "length"

    @property
    def sampled(self) -> Sampled:
        return Sampled(tokens=self.tokens, logprobs=self.logprobs, stop_reason=self.stop_reason or "length")


@dataclass(slots=True)
class _Batch:
    """Tensors of the rows that are still in the batch. R rows, C columns of the cache (mask: one for each token that can come)."""

    rows: list[_Row]
    cache: DecodeCache
    mask: torch.Tensor
    """(R, C + new tokens), true where a column holds a token of the row."""
    filled: int
    """Columns of the cache in use (C)."""
    lengths: torch.Tensor
    """(R,) tokens of each row so far: the position of its next token."""
    logits: torch.Tensor
    """(R, V) for the next token."""
    noise: torch.Tensor
    """(R, new tokens) uniform numbers."""
    temperatures: torch.Tensor
    """(R,)"""


@torch.inference_mode()
def generate(network: PolicyNetwork, requests: Sequence[Request], store: PrefixStore | None = None) -> list[Sampled]:
    """Sample one continuation for each request, all of one policy.

    Args:
        network: The policy, with the weights to sample from.
        requests: At least one, each with a prompt of at least one token.
        store: Caches of earlier turns of the same weights, read and updated; None: nothing is reused.

    Raises:
        ProviderError: The logits are not finite.
    """
    rows = [_Row(request) for request in requests]
    steps = max(request.max_tokens for request in requests)
    used, batch = _prefill(network, rows, steps, store)
    kept: list[Prefix] = []
    for step in range(steps):
        tokens, logprobs = draw(batch.logits, batch.noise[:, step], batch.temperatures)
        if not bool(logprobs.isfinite().all()):
            raise ProviderError(
                "the policy's logits are not finite, so nothing can be sampled. Resume from an earlier checkpoint with a smaller train.lr "
                "or a smaller train.grad_clip."
            )
        for row, token, logprob in zip(batch.rows, numbers(tokens), numbers(logprobs), strict=True):
            if row.stop_reason is None:
                row.take(token, logprob)
        live = [i for i, row in enumerate(batch.rows) if row.stop_reason is None]
        if not live:
            break
        if 2 * len(live) <= len(batch.rows):
            kept.extend(_prefixes(batch, store))
            batch = _selected(batch, live, steps - step)
            tokens = tokens[live]
        _advance(network, batch, tokens)
    if store is not None:
        store.replace(used, [*kept, *_prefixes(batch, store)])
    return [row.sampled for row in rows]


def _prefill(network: PolicyNetwork, rows: list[_Row], steps: int, store: PrefixStore | None) -> tuple[list[Prefix], _Batch]:
    """Compute the prompts, equal ones once, continuing from stored prefixes."""
    keys = [as_key(row.request.prompt) for row in rows]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    unique = [i for i, key in enumerate(keys) if first[key] == i] if network.uniform else list(range(len(rows)))
    found = [store.find(keys[i]) if store is not None and network.uniform else None for i in unique]
    suffixes = [list(rows[i].request.prompt[p.length if p is not None else 0 :]) for i, p in zip(unique, found, strict=True)]
    width = max(len(suffix) for suffix in suffixes)
    reserve = min(steps, _RESERVE)
    if network.uniform:
        longest = max((p.length for p in found if p is not None), default=0)
        cache, past = gathered(found, network.layers, longest + width + (reserve if len(unique) == len(rows) else 0))
    else:
        cache, past = StockCache(network.config), torch.zeros(len(unique), 0, dtype=torch.bool)
    # prompts are padded on the left, so that the last column is the last token of every row
    ids = torch.tensor([[0] * (width - len(s)) + s for s in suffixes])
    here = torch.arange(width)[None, :] >= width - torch.tensor([len(s) for s in suffixes])[:, None]
    mask = torch.cat([past, here], dim=1)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -width:]
    logits = network.next_logits(ids, mask, positions, cache.stock)
    if len(unique) < len(rows):
        place = {keys[i]: place for place, i in enumerate(unique)}
        spread = torch.tensor([place[key] for key in keys])
        cache, mask, logits = cache.select(spread, mask.shape[1] + reserve), mask[spread], logits[spread.to(logits.device)]
    batch = _Batch(
        rows=list(rows),
        cache=cache,
        mask=torch.cat([mask, torch.zeros(len(rows), steps, dtype=torch.bool)], dim=1),
        filled=mask.shape[1],
        lengths=mask.sum(dim=1),
        logits=logits,
        noise=uniforms([row.request.seed for row in rows], steps).to(logits.device),
        temperatures=torch.tensor([row.request.temperature for row in rows], dtype=torch.float32, device=logits.device),
    )
    return [p for p in found if p is not None], batch


def _advance(network: PolicyNetwork, batch: _Batch, tokens: torch.Tensor) -> None:
    """Feed one token a row. Finished rows are fed too, but their mask keeps the column out."""
    batch.mask[:, batch.filled] = torch.tensor([row.stop_reason is None for row in batch.rows])
    batch.filled += 1
    batch.logits = network.next_logits(tokens[:, None], batch.mask[:, : batch.filled], batch.lengths[:, None], batch.cache.stock)
    batch.lengths = batch.lengths + 1


def _selected(batch: _Batch, live: list[int], steps: int) -> _Batch:
    index = torch.tensor(live)
    on_device = index.to(batch.logits.device)
    return _Batch(
        rows=[batch.rows[i] for i in live],
        cache=batch.cache.select(index, batch.filled + min(steps, _RESERVE)),
        mask=batch.mask[index],
        filled=batch.filled,
        lengths=batch.lengths[index],
        logits=batch.logits[on_device],
        noise=batch.noise[on_device],
        temperatures=batch.temperatures[on_device],
    )


def _prefixes(batch: _Batch, store: PrefixStore | None) -> list[Prefix]:
    """The finished rows as stored sequences: prompt and sample without its last token, which was never fed."""
    if store is None or not isinstance(batch.cache, BufferCache):
        return []
    return [
        Prefix(as_key([*row.request.prompt, *row.tokens[:-1]]), batch.cache, i, batch.mask[i].nonzero().squeeze(1))
        for i, row in enumerate(batch.rows)
        if row.stop_reason is not None
    ]
