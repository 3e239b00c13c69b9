"""Supervised warm start: the loss is what the docstring says, training is deterministic, a copied rule is learned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from auditrl.policy.sft import SftSettings, Weighted, batches, train_weighted, weighted_loss


def _model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    return LlamaForCausalLM(config)


def _example(rng: Random, progress: float) -> Weighted:
    """`0 a a+1`: the last token follows from the one before."""
    a = rng.randrange(1, 10)
    return Weighted([0, a, a + 1], [0.0, 0.0, 1.0])


def test_loss_is_the_weighted_mean_whatever_the_padding() -> None:
    model = _model()
    rows = [Weighted([1, 2, 3, 4], [9.0, 1.0, 0.0, 2.0]), Weighted([5, 6], [1.0, 0.5])]
    with torch.inference_mode():
        logps = [model(input_ids=torch.tensor([r.tokens])).logits[0].log_softmax(-1) for r in rows]
        expected = -(1.0 * logps[0][0, 2] + 2.0 * logps[0][2, 4] + 0.5 * logps[1][0, 6]) / 3.5
        assert float(weighted_loss(model, rows)) == pytest.approx(float(expected), rel=1e-5)
        assert float(weighted_loss(model, rows, pad=7)) == pytest.approx(float(expected), rel=1e-5)


def test_a_batch_without_weights_changes_nothing() -> None:
    with torch.inference_mode():
        assert float(weighted_loss(_model(), [Weighted([1, 2], [0.0, 0.0])])) == 0.0


def test_a_rule_is_learned_and_progress_reported() -> None:
    model, settings = _model(), SftSettings(steps=60, lr=2e-2, batch=16, warmup=5)
    seen: list[tuple[int, float]] = []
    losses = train_weighted(model, batches(_example, settings, 0), settings, progress=lambda step, loss: seen.append((step, loss)))
    assert losses[0] > 2.0
    assert losses[-1] < 0.3
    assert [step for step, _ in seen] == list(range(1, 61))
    assert [loss for _, loss in seen] == losses
    assert not model.training


def test_same_seed_same_weights() -> None:
    settings = SftSettings(steps=5, batch=4)
    weights: list[torch.Tensor] = []
    for data_seed in (3, 3, 4):
        model = _model(1)
        train_weighted(model, batches(_example, settings, data_seed), settings)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_training_ends_with_the_examples() -> None:
    def two() -> Iterator[list[Weighted]]:
        yield [Weighted([1, 2], [0.0, 1.0])]
        yield [Weighted([2, 3], [0.0, 1.0])]

    assert len(train_weighted(_model(), two(), SftSettings(steps=9))) == 2


def test_batches_are_bucketed_by_length_and_follow_the_progress() -> None:
    seen: list[float] = []

    def example(rng: Random, progress: float) -> Weighted:
        seen.append(progress)
        n = rng.randrange(2, 60)
        return Weighted([1] * n, [1.0] * n)

    groups = list(batches(example, SftSettings(steps=20, batch=8), 0))
    assert len(groups) == 20
    assert all(len(g) == 8 for g in groups)
    spread = [max(len(w.tokens) for w in g) - min(len(w.tokens) for w in g) for g in groups]
    assert sum(spread) / len(spread) < 15
    assert seen[0] == 0.0
    assert seen[-1] == 16 / 20


@pytest.mark.parametrize(("step", "share"), [(0, 0.1), (9, 1.0), (10, 1.0), (55, 0.51), (100, 0.02), (500, 0.02)])
def test_learning_rate_warms_up_and_falls_to_the_floor(step: int, share: float) -> None:
    settings = SftSettings(steps=100, lr=1.0, warmup=10)
    assert math.isclose(settings.lr_at(step), share, abs_tol=0.01)
