"""Segments -> padded batches of bounded size, equal heads computed once.

The audits of a group start from the same prompt. What stands before the first trained token of a segment is its *head*; where several
segments share one, the head passes through the model once and the rest of each row (its *tail*) continues from its keys and values. The
loss and its gradient are the same. Tails need an attention mask, which costs; so heads are shared where that saves enough tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .engine import Segment

__all__ = ["MicroBatch", "micro_batches"]

_WORTH_SHARING = 0.3
"""Share of a group's tokens that a shared head must save. Break-even was at 0.25-0.3 for a model of 0.4M parameters on a CPU, where
attention without a mask skips half of its work; models that are wider gain earlier."""


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """R rows, and the N tokens among them that are trained on. All padding is on the right.

    Without shared heads (`heads` is None) a row is a whole segment; else it is a segment's tail.
    """

    ids: torch.Tensor
    """(R, T) tokens."""
    rows: torch.Tensor
    """(N,) row of each trained token."""
    columns: torch.Tensor
    """(N,) its column; at least 1 where there is no head."""
    sampling: torch.Tensor
    """(N,) log-probability when it was sampled, float32."""
    advantages: torch.Tensor
    """(N,) advantage of its segment, float32."""
    heads: torch.Tensor | None
    """(G, P) tokens of the shared heads."""
    head_lengths: torch.Tensor
    """(G,)"""
    head_of: torch.Tensor
    """(R,) which head a row continues."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A segment without what follows its last trained token."""

    segment: Segment
    head: tuple[int, ...]
    end: int

    @property
    def tail(self) -> int:
        return self.end - len(self.head)


def micro_batches(segments: Sequence[Segment], budget_tokens: int, device: torch.device, *, share_heads: bool) -> Iterator[MicroBatch]:
    """Split segments into batches of at most `budget_tokens` padded tokens that the model computes (one row at least), longest first.

    Segments without a trained token are left out: they can't change anything.
    """
    pieces = [_piece(s) for s in segments if any(s.mask)]
    groups: dict[tuple[int, ...], list[_Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece.head, []).append(piece)
    worth = {head for head, group in groups.items() if share_heads and _saved_share(head, group) >= _WORTH_SHARING}
    alone = [p for p in pieces if p.head not in worth]
    shared = [p for p in pieces if p.head in worth]
    for rows in _split_alone(sorted(alone, key=lambda p: -p.end), budget_tokens):
        yield _padded(rows, device, share_heads=False)
    order = {head: i for i, head in enumerate(sorted((h for h in groups if h in worth), key=lambda head: -len(head)))}
    for rows in _split_shared(sorted(shared, key=lambda p: (order[p.head], -p.end)), budget_tokens):
        yield _padded(rows, device, share_heads=True)


def _piece(segment: Segment) -> _Piece:
    return _Piece(segment, tuple(segment.tokens[: segment.mask.index(1)]), len(segment.mask) - segment.mask[::-1].index(1))


def _saved_share(head: tuple[int, ...], group: Sequence[_Piece]) -> float:
    return (len(group) - 1) * len(head) / sum(p.end for p in group)


def _split_alone(pieces: list[_Piece], budget_tokens: int) -> Iterator[list[_Piece]]:
    start = 0
    while start < len(pieces):
        count = max(1, budget_tokens // pieces[start].end)
        yield pieces[start : start + count]
        start += count


def _split_shared(pieces: list[_Piece], budget_tokens: int) -> Iterator[list[_Piece]]:
    """Rows of one head stay together as far as the budget allows."""
    batch: list[_Piece] = []
    for piece in pieces:
        wider = [*batch, piece]
        heads = {p.head for p in wider}
        cost = len(heads) * max(map(len, heads)) + len(wider) * max(p.tail for p in wider)
        if batch and cost > budget_tokens:
            yield batch
            wider = [piece]
        batch = wider
    if batch:
        yield batch


def _padded(pieces: Sequence[_Piece], device: torch.device, *, share_heads: bool) -> MicroBatch:
    starts = [len(p.head) if share_heads else 0 for p in pieces]
    ids = torch.zeros(len(pieces), max(p.end - start for p, start in zip(pieces, starts, strict=True)), dtype=torch.long)
    places: list[torch.Tensor] = []
    sampling: list[float] = []
    for row, (piece, start) in enumerate(zip(pieces, starts, strict=True)):
        ids[row, : piece.end - start] = torch.tensor(piece.segment.tokens[start : piece.end])
        places.append(torch.tensor(piece.segment.mask[start : piece.end], dtype=torch.bool).nonzero().squeeze(1))
        sampling += [lp for lp, m in zip(piece.segment.logprobs, piece.segment.mask, strict=True) if m]
    counts = torch.tensor([len(p) for p in places])
    advantages = torch.tensor([p.segment.advantage for p in pieces], dtype=torch.float32)
    heads = list(dict.fromkeys(p.head for p in pieces)) if share_heads else []
    padded_heads = torch.zeros(len(heads), max((len(h) for h in heads), default=0), dtype=torch.long)
    for i, head in enumerate(heads):
        padded_heads[i, : len(head)] = torch.tensor(head)
    return MicroBatch(
        ids=ids.to(device),
        rows=torch.arange(len(pieces)).repeat_interleave(counts).to(device),
        columns=torch.cat(places).to(device),
        sampling=torch.tensor(sampling, dtype=torch.float32, device=device),
        advantages=advantages.repeat_interleave(counts).to(device),
        heads=padded_heads.to(device) if share_heads else None,
        head_lengths=torch.tensor([len(h) for h in heads], dtype=torch.long, device=device),
        head_of=torch.tensor([heads.index(p.head) for p in pieces] if share_heads else [], dtype=torch.long, device=device),
    )
