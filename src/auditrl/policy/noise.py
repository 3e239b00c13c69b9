"""Sampling noise keyed by (request seed, token index), and the inverse-CDF draw that uses it.

One uniform number a token, from a counter-based generator: what a request draws never depends on what runs beside it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

__all__ = ["draw", "numbers", "torch_seed", "uniforms"]


def uniforms(seeds: Sequence[int], count: int) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64, shape (rows, count). Row r depends on seeds[r] alone; a longer row starts with the shorter."""
    return torch.tensor(np.stack([np.random.Generator(np.random.Philox(key=seed)).random(count) for seed in seeds]))


def numbers(values: torch.Tensor) -> list[Any]:
    """A one-dimensional tensor as Python numbers."""
    return cast(Any, values).tolist()


@contextmanager
def torch_seed(seed: int) -> Generator[None]:
    """Torch's own generators seeded for a block, and put back afterwards."""
    random: Any = torch.random
    with random.fork_rng():
        random.manual_seed(seed % 2**63)
        yield


def draw(logits: torch.Tensor, noise: torch.Tensor, temperatures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token a row.

    The cumulative distribution is taken in float64: in float32 its rounding would favour the last tokens of a large vocabulary.

    Args:
        logits: Shape (R, V), any float type.
        noise: Uniform numbers, shape (R,), float64.
        temperatures: Shape (R,), float32. 0 means greedy.

    Returns:
        Tokens, shape (R,), and their float32 log-probabilities under the softmax of logits/temperature (greedy: under temperature 1).
    """
    greedy = temperatures == 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    cumulative = torch.softmax(scaled.double(), dim=-1).cumsum(dim=-1)
    # `right` skips tokens of probability 0; scaling by the total keeps the point inside although the sum is not exactly 1
    point = noise[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, scaled.argmax(dim=-1), tokens)
    logprobs = torch.log_softmax(scaled, dim=-1).gather(-1, tokens[:, None]).squeeze(-1)
    return tokens, logprobs
