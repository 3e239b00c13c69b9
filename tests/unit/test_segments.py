"""Merging turns into segments: nothing sampled is lost, nothing is trained on after another past than it was sampled after."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from auditrl.policy.ledger import TokenLedger
from auditrl.policy.segments import merge_turns
from auditrl.types import Sampled

Turns = list[tuple[list[int], Sampled]]


def sampled(tokens: list[int]) -> Sampled:
    return Sampled(tokens=tokens, logprobs=[-t / 10 for t in tokens], stop_reason="stop")


@dataclass
class History:
    """Turns, and how many of them rewrote what was before."""

    turns: Turns
    rewritten: int


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Turns of an audit whose history now and then is rewritten. Rewritten prompts start with a token that occurs nowhere else."""
    tokens = st.lists(st.integers(1, 9), max_size=4)
    prompt = [0, *draw(tokens)]
    turns: Turns = []
    rewritten = 0
    for number in range(draw(st.integers(1, 6))):
        if number and draw(st.booleans()):
            prompt = [100 + number, *draw(tokens)]
            rewritten += 1
        sample = sampled(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
        turns.append((list(prompt), sample))
        prompt = [*prompt, *sample.tokens, *draw(tokens)]
    return History(turns, rewritten)


@given(histories())
def test_every_sampled_token_is_trained_on_once_after_its_own_past(history: History) -> None:
    segments = merge_turns(history.turns, audit_id="a", group="g", advantage=0.5)
    assert len(segments) == history.rewritten + 1
    seen: list[tuple[list[int], int, float]] = []
    for segment in segments:
        assert len(segment.tokens) == len(segment.mask) == len(segment.logprobs)
        assert (segment.audit_id, segment.group, segment.advantage) == ("a", "g", 0.5)
        for t, (token, mask, logprob) in enumerate(zip(segment.tokens, segment.mask, segment.logprobs, strict=True)):
            if mask:
                seen.append((segment.tokens[:t], token, logprob))
            else:
                assert logprob == 0.0
    expected = [
        ([*prompt, *sample.tokens[:i]], token, logprob)
        for prompt, sample in history.turns
        for i, (token, logprob) in enumerate(zip(sample.tokens, sample.logprobs, strict=True))
    ]
    assert seen == expected


def test_example() -> None:
    turns = [([1, 2], sampled([3, 4])), ([1, 2, 3, 4, 5], sampled([6])), ([1, 9], sampled([7]))]
    first, second = merge_turns(turns)
    assert (first.tokens, first.mask) == ([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 1])
    assert first.logprobs == [0, 0, -0.3, -0.4, 0, -0.6]
    assert (second.tokens, second.mask) == ([1, 9, 7], [0, 0, 1])


def test_a_prompt_that_repeats_the_whole_past_and_adds_nothing_still_merges() -> None:
    (segment,) = merge_turns([([1], sampled([2])), ([1, 2], sampled([3]))])
    assert (segment.tokens, segment.mask) == ([1, 2, 3], [0, 1, 1])


def test_a_shorter_prompt_starts_anew_and_an_empty_sample_adds_nothing() -> None:
    assert [s.tokens for s in merge_turns([([1, 2], sampled([3])), ([1, 2], sampled([4]))])] == [[1, 2, 3], [1, 2, 4]]
    assert merge_turns([([1, 2], sampled([]))]) == []


def test_the_ledger_keeps_audits_apart() -> None:
    ledger = TokenLedger()
    assert ledger.record("a", 0, [1], sampled([2])) == "a/0"
    ledger.record("b", 0, [5], sampled([6]))
    ledger.record("a", 1, [1, 2, 3], sampled([4]))
    assert [prompt for prompt, _ in ledger.turns("a")] == [(1,), (1, 2, 3)]
    assert [s.tokens for s in merge_turns(ledger.pop("a"))] == [[1, 2, 3, 4]]
    assert ledger.turns("a") == []
    assert len(ledger.turns("b")) == 1
