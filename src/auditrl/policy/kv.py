"""Key-value caches of batched decoding, and the store that lets an audit's next turn continue from its last one.

Rows of a batch differ in length, so a cache has holes: which of its columns belong to a row's tokens is told by a boolean mask of the
same width, and positions are counted over the mask, never over columns. That is right for models whose every layer attends to the
whole past (`is_uniform`). For others (sliding windows, recurrent layers) columns are distances, so `StockCache` keeps rows contiguous
and nothing is reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, cast

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

__all__ = ["BufferCache", "DecodeCache", "Prefix", "PrefixStore", "StockCache", "as_key", "is_uniform"]

_GROWTH = 64


def is_uniform(config: Any) -> bool:
    """Whether every layer of the model attends to the whole past."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        return all(kind == "full_attention" for kind in layer_types)
    return getattr(config, "sliding_window", None) is None


class _BufferLayer(CacheLayerMixin):
    """Keys and values of one layer in a buffer that is written in place: concatenating them anew for each token costs more than the model.

    `buffers` holds keys and values, each of shape (rows, heads, capacity, head size), of which `length` columns are filled.
    """

    is_sliding = False
    is_compileable = False

    def __init__(self, reserve: int) -> None:
        cast(Any, super()).__init__()
        self.reserve = reserve
        self.length = 0
        self.buffers: list[torch.Tensor] = []

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the first tokens and the reserve."""
        capacity = max(self.reserve, key_states.shape[2])
        self.buffers = [states.new_zeros(*states.shape[:2], capacity, states.shape[3]) for states in (key_states, value_states)]
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Append the new tokens; returns all keys and values so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        if end > self.buffers[0].shape[2]:
            self.grow(max(end, self.length + self.length // 2 + _GROWTH))
        self.buffers[0][:, :, self.length : end] = key_states
        self.buffers[1][:, :, self.length : end] = value_states
        self.length = end
        return self.buffers[0][:, :, :end], self.buffers[1][:, :, :end]

    def grow(self, capacity: int) -> None:
        """Move to buffers with room for `capacity` columns."""
        self.buffers = [_widened(b[:, :, : self.length], capacity) for b in self.buffers]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns after the next update, and the offset of the first."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns filled."""
        return self.length

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    def get_max_cache_shape(self) -> int:
        """No limit (the name of `get_max_length` in transformers 4)."""
        return -1


def _widened(states: torch.Tensor, capacity: int) -> torch.Tensor:
    wide = states.new_zeros(*states.shape[:2], capacity, states.shape[3])
    wide[:, :, : states.shape[2]] = states
    return wide


class DecodeCache(Protocol):
    """What the decoding loop needs of a cache."""

    @property
    def stock(self) -> Cache:
        """The object that the model's forward takes."""
        ...

    def select(self, rows: torch.Tensor, reserve: int) -> Self:
        """Cache of these rows (they may repeat), with room for `reserve` columns."""
        ...


class BufferCache:
    """Cache over in-place buffers, one a layer."""

    def __init__(self, layers: Sequence[_BufferLayer]) -> None:
        self.layers = list(layers)
        self.stock: Cache = Cache(layers=cast(Any, self.layers))

    @classmethod
    def empty(cls, layers: int, reserve: int) -> BufferCache:
        """A cache without tokens."""
        return cls([_BufferLayer(reserve) for _ in range(layers)])

    @property
    def tokens(self) -> int:
        """Memory held, in token positions (rows x capacity)."""
        buffers = self.layers[0].buffers
        return buffers[0].shape[0] * buffers[0].shape[2] if buffers else 0

    def select(self, rows: torch.Tensor, reserve: int) -> BufferCache:
        """Cache of these rows (they may repeat), with room for `reserve` columns."""
        chosen = BufferCache.empty(len(self.layers), reserve)
        for old, new in zip(self.layers, chosen.layers, strict=True):
            new.buffers = [_widened(b[rows, :, : old.length], max(reserve, old.length)) for b in old.buffers]
            new.length, new.is_initialized = old.length, True
        return chosen


class StockCache:
    """The model's own kind of cache, for models whose layers are not all alike."""

    def __init__(self, config: Any, stock: Cache | None = None) -> None:
        self.stock: Cache = stock if stock is not None else DynamicCache(config=config)
        self._config = config

    def select(self, rows: torch.Tensor, reserve: int) -> StockCache:
        """The same cache, reduced to these rows in place; `reserve` is not needed."""
        cast(Any, self.stock).batch_select_indices(rows)
        return self


def as_key(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes of equal width, so that "starts with" is one memory comparison."""
    return array("i", tokens).tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Where the keys and values of a token sequence stand: a row of a cache, and its columns in order (1-D, int64)."""

    key: bytes
    cache: BufferCache
    row: int
    columns: torch.Tensor

    @property
    def length(self) -> int:
        """Tokens covered."""
        return self.columns.shape[0]


@dataclass(slots=True)
class PrefixStore:
    """Caches of past turns, found by their tokens. Belongs to one policy: any change of weights must clear it.

    Args:
        budget_tokens: Token positions of memory to keep; the oldest caches go first.
    """

    budget_tokens: int
    hits: int = 0
    """Tokens that were not computed again."""
    _prefixes: list[Prefix] = field(default_factory=list[Prefix])

    def find(self, prompt: bytes) -> Prefix | None:
        """The longest stored sequence that the prompt properly extends (its last token must be computed to predict the next)."""
        fitting = [p for p in self._prefixes if len(p.key) < len(prompt) and prompt.startswith(p.key)]
        return max(fitting, key=lambda p: p.length, default=None)

    def replace(self, used: Sequence[Prefix], new: Sequence[Prefix]) -> None:
        """Add the sequences of a finished batch and drop those that they continue."""
        gone = {id(p) for p in used}
        self._prefixes = [p for p in self._prefixes if id(p) not in gone] + list(new)
        self.hits += sum(p.length for p in used)
        caches = list({id(p.cache): p.cache for p in reversed(self._prefixes)}.values())
        held = 0
        kept: set[int] = set()
        for cache in caches:  # newest first
            held += cache.tokens
            if held > self.budget_tokens:
                break
            kept.add(id(cache))
        self._prefixes = [p for p in self._prefixes if id(p.cache) in kept]

    def clear(self) -> None:
        """Forget everything."""
        self._prefixes = []


def gathered(prefixes: Sequence[Prefix | None], layers: int, reserve: int) -> tuple[BufferCache, torch.Tensor]:
    """One cache whose row u continues prefixes[u], right-aligned.

    Returns:
        The cache, filled up to the longest prefix, and the mask of its columns, shape (U, longest).
    """
    longest = max((p.length for p in prefixes if p is not None), default=0)
    cache = BufferCache.empty(layers, reserve)
    first = next((p for p in prefixes if p is not None), None)
    if first is None:
        return cache, torch.zeros(len(prefixes), 0, dtype=torch.bool)
    lengths = torch.tensor([p.length if p is not None else 0 for p in prefixes])
    mask = torch.arange(longest)[None, :] >= longest - lengths[:, None]
    sources: dict[int, list[int]] = {}
    for row, prefix in enumerate(prefixes):
        if prefix is not None:
            sources.setdefault(id(prefix.cache), []).append(row)
    for rows in sources.values():
        group = [cast(Prefix, prefixes[row]) for row in rows]
        # what lies left of a row's own columns is masked; any finite values may stand there, here those of column 0
        columns = torch.stack([torch.nn.functional.pad(p.columns, (longest - p.length, 0)) for p in group])
        from_rows = torch.tensor([p.row for p in group])
        for source, target in zip(group[0].cache.layers, cache.layers, strict=True):
            if not target.buffers:
                target.buffers = [b.new_zeros(len(prefixes), b.shape[1], max(reserve, longest), b.shape[3]) for b in source.buffers]
                target.length, target.is_initialized = longest, True
            for old, new in zip(source.buffers, target.buffers, strict=True):
                index = columns.to(old.device)[:, None, :, None].expand(-1, old.shape[1], -1, old.shape[3])
                new[torch.tensor(rows), :, :longest] = old[from_rows].gather(2, index)
    return cache, mask
