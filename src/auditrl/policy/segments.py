"""From the recorded turns of one audit to segments that can be trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..types import Sampled, Segment

__all__ = ["merge_turns"]


def merge_turns(
    turns: Iterable[tuple[Sequence[int], Sampled]], *, audit_id: str = "", group: str = "", advantage: float = 0.0
) -> list[Segment]:
    """Merge consecutive turns while the next prompt extends everything before it; a rewritten history starts a new segment.

    Every sampled token stands in exactly one segment, with the log-probability it was sampled with and the tokens it was sampled after:
    what lies before it in the segment is its turn's prompt.

    Args:
        turns: (prompt tokens, sample) in the order they were sampled.
        audit_id: Written into each segment.
        group: Written into each segment.
        advantage: Written into each segment.
    """
    segments: list[Segment] = []
    for prompt, sampled in turns:
        if not sampled.tokens:
            continue
        last = segments[-1] if segments else None
        if last is None or len(prompt) < len(last.tokens) or list(prompt[: len(last.tokens)]) != last.tokens:
            last = Segment([], [], [], advantage=advantage, audit_id=audit_id, group=group)
            segments.append(last)
        new = list(prompt[len(last.tokens) :])
        last.tokens += [*new, *sampled.tokens]
        last.mask += [0] * len(new) + [1] * len(sampled.tokens)
        last.logprobs += [0.0] * len(new) + list(sampled.logprobs)
    return segments
