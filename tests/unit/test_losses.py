"""Losses against numbers worked out by hand, and their gradients."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auditrl.errors import ConfigError
from auditrl.policy.engine import LossConfig
from auditrl.policy.losses import LossSums, policy_loss

PPO = LossConfig(kind="ppo", clip_low=0.8, clip_high=1.28, ratio_mask=(0.2, 5.0))
IS = LossConfig(kind="importance_sampling", ratio_mask=(0.2, 5.0))


def one(ratio: float, advantage: float, config: LossConfig, start_ratio: float = 1.0) -> tuple[float, float, LossSums]:
    """Loss, its derivative by the log-probability, and sums, of one token with p/q = ratio and s/p = start_ratio."""
    sampling = torch.tensor([-1.0])
    logprobs = (sampling + math.log(ratio)).requires_grad_()
    start = (logprobs.detach() + math.log(start_ratio)) if config.kl_coef else None
    loss, sums = policy_loss(logprobs, sampling, torch.tensor([advantage]), config, start=start)
    loss.backward()
    assert logprobs.grad is not None
    return float(loss.detach()), float(logprobs.grad), sums


@pytest.mark.parametrize(
    ("config", "ratio", "advantage", "loss", "slope", "clipped", "masked"),
    [
        (PPO, 1.0, 2.0, -2.0, -2.0, 0, 0),
        (PPO, 1.2, 1.0, -1.2, -1.2, 0, 0),  # inside the clip
        (PPO, 1.5, 1.0, -1.28, 0.0, 1, 0),  # above it, and good: no further
        (PPO, 1.5, -1.0, 1.5, 1.5, 0, 0),  # above it, and bad: full push back
        (PPO, 0.5, -1.0, 0.8, 0.0, 1, 0),  # below it, and bad: no further
        (PPO, 0.5, 1.0, -0.5, -0.5, 0, 0),
        (PPO, 6.0, -1.0, 0.0, 0.0, 0, 1),  # outside the mask
        (PPO, 0.1, -1.0, 0.0, 0.0, 0, 1),
        (LossConfig(ratio_mask=None), 6.0, -1.0, 6.0, 6.0, 0, 0),
        (IS, 1.5, 1.0, -1.5, -1.5, 0, 0),
        (IS, 0.5, -2.0, 1.0, 1.0, 0, 0),
        (IS, 6.0, 1.0, 0.0, 0.0, 0, 1),
    ],
)
def test_one_token(config: LossConfig, ratio: float, advantage: float, loss: float, slope: float, clipped: int, masked: int) -> None:
    value, gradient, sums = one(ratio, advantage, config)
    assert value == pytest.approx(loss, abs=1e-5)
    assert gradient == pytest.approx(slope, abs=1e-5)
    assert (sums.clipped, sums.masked, sums.tokens) == (clipped, masked, 1)
    assert sums.ratio == pytest.approx(ratio, rel=1e-5)
    assert sums.ratio_max == pytest.approx(ratio, rel=1e-5)
    assert sums.kl_sampling == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-5)


@pytest.mark.parametrize("start_ratio", [0.5, 1.0, 3.0])
def test_kl_to_the_start(start_ratio: float) -> None:
    config = LossConfig(kl_coef=0.1)
    value, gradient, sums = one(1.0, 0.0, config, start_ratio)
    k3 = start_ratio - math.log(start_ratio) - 1
    assert sums.kl_start == pytest.approx(k3, abs=1e-5)
    assert value == pytest.approx(0.1 * k3, abs=1e-5)
    assert gradient == pytest.approx(0.1 * (1 - start_ratio), abs=1e-5)


def test_sum_over_tokens_is_the_sum_of_their_losses() -> None:
    ratios, advantages = [1.0, 1.5, 0.5, 9.0], [1.0, 1.0, -1.0, 1.0]
    sampling = torch.full((4,), -2.0)
    loss, sums = policy_loss(sampling + torch.tensor(ratios).log(), sampling, torch.tensor(advantages), PPO)
    parts = [one(r, a, PPO) for r, a in zip(ratios, advantages, strict=True)]
    assert float(loss) == pytest.approx(sum(p[0] for p in parts), abs=1e-5)
    total = LossSums()
    for part in parts:
        total.add(part[2])
    assert (total.tokens, total.clipped, total.masked) == (sums.tokens, sums.clipped, sums.masked) == (4, 2, 1)
    assert total.ratio_max == pytest.approx(sums.ratio_max)


def test_an_absurd_ratio_leaves_the_gradient_finite() -> None:
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    loss, _ = policy_loss(logprobs, torch.tensor([-500.0, -1.0]), torch.tensor([1.0, 1.0]), PPO)
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.0, -1.0]


@given(ratio=st.floats(0.81, 1.27), advantage=st.floats(-3, 3))
def test_both_losses_agree_inside_the_clip(ratio: float, advantage: float) -> None:
    assert one(ratio, advantage, PPO)[:2] == pytest.approx(one(ratio, advantage, IS)[:2])


def test_bad_settings_are_named() -> None:
    token = torch.tensor([-1.0])
    with pytest.raises(ConfigError, match=r"train\.loss\.kind.*cispo"):
        policy_loss(token, token, token, LossConfig(kind="cispo"))
    with pytest.raises(ConfigError, match="kl_coef"):
        policy_loss(token, token, token, LossConfig(kl_coef=0.1))
