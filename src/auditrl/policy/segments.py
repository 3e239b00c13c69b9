"""From the recorded turns of one audit to segments that can be trained on, and what is refused before an update."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..errors import RewardError
from ..types import Sampled, Segment

__all__ = ["check_segments", "merge_turns"]


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


def check_segments(segments: Sequence[Segment]) -> None:
    """Refuse what would train on nonsense.

    Raises:
        RewardError: An advantage is not finite, lengths differ, or a sampled token has nothing before it.
    """
    for segment in segments:
        if not math.isfinite(segment.advantage):
            raise RewardError(
                f"audit {segment.audit_id or '?'}: its advantage is {segment.advantage}. A reward design must return finite numbers."
            )
        if not len(segment.tokens) == len(segment.mask) == len(segment.logprobs):
            raise RewardError(f"audit {segment.audit_id or '?'}: tokens, mask and logprobs of a segment differ in length.")
        if segment.mask and segment.mask[0]:
            raise RewardError(f"audit {segment.audit_id or '?'}: a segment starts with a sampled token; its prompt is missing.")
