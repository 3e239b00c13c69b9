"""Batched decoding against the plainest possible one: a full forward pass for every token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_policy import VOCABULARY, tiny_llama, tiny_mistral

from auditrl.errors import ProviderError
from auditrl.policy.generate import Request, generate
from auditrl.policy.kv import PrefixStore, as_key
from auditrl.policy.network import PolicyNetwork, load_network
from auditrl.policy.noise import draw, uniforms
from auditrl.types import Sampled


def load(folder: Path) -> PolicyNetwork:
    return load_network(folder, method="full", lora=None, dtype="float32", device="cpu", gradient_checkpointing=False, seed=0)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> PolicyNetwork:
    return load(tiny_llama(tmp_path_factory.mktemp("llama")))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> PolicyNetwork:
    return load(tiny_mistral(tmp_path_factory.mktemp("mistral")))


@torch.inference_mode()
def plain(network: PolicyNetwork, request: Request) -> Sampled:
    """One request, no batch, no cache."""
    tokens: list[int] = []
    logprobs: list[float] = []
    noise = uniforms([request.seed], request.max_tokens)
    for step in range(request.max_tokens):
        logits = network.causal(input_ids=torch.tensor([[*request.prompt, *tokens]]), use_cache=False).logits[:, -1]
        token, logprob = draw(logits, noise[:, step], torch.tensor([request.temperature]))
        tokens.append(int(token))
        logprobs.append(float(logprob))
        if tokens[-1] in request.stop:
            return Sampled(tokens, logprobs, "stop")
    return Sampled(tokens, logprobs, "length")


def requests(count: int = 12) -> list[Request]:
    """Different lengths, limits, temperatures and stops; the last two share a prompt."""
    rows = [
        Request(
            "p",
            tuple((7 * i + j) % VOCABULARY for j in range(1 + 3 * i % 11)),
            3 + i % 6,
            (1.0, 0.7, 0.0)[i % 3],
            frozenset({i, i + 20}),
            100 + i,
        )
        for i in range(count)
    ]
    rows[-1] = replace(rows[-1], prompt=rows[-2].prompt)
    return rows


def assert_same(got: Sampled, wanted: Sampled) -> None:
    assert (got.tokens, got.stop_reason) == (wanted.tokens, wanted.stop_reason)
    assert got.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)


@pytest.mark.parametrize("model", ["llama", "mistral"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_batch_samples_what_each_request_would_alone(model: str, kept: bool, request: pytest.FixtureRequest) -> None:
    network: PolicyNetwork = request.getfixturevalue(model)
    rows = requests()
    expected = [plain(network, row) for row in rows]
    assert len({e.stop_reason for e in expected}) == 2
    for part in (rows, rows[::-1], rows[3:7]):
        got = generate(network, part, PrefixStore(10_000) if kept else None)
        for row, sampled in zip(part, got, strict=True):
            assert_same(sampled, expected[rows.index(row)])


def test_later_turns_continue_from_earlier_ones(llama: PolicyNetwork) -> None:
    store = PrefixStore(10_000)
    rows = requests(8)
    reused = 0
    for turn in range(3):
        samples = generate(llama, rows, store)
        for row, sampled in zip(rows, samples, strict=True):
            assert_same(sampled, plain(llama, row))
        if turn:
            assert store.hits - reused == sum(len(row.prompt) for row in rows) - sum(1 + 1 + i % 3 for i in range(8))
        reused = store.hits
        rows = [
            replace(row, prompt=(*row.prompt, *sampled.tokens, *range(1 + i % 3)), seed=row.seed + 1000)
            for i, (row, sampled) in enumerate(zip(rows, samples, strict=True))
        ]


def test_the_prefix_store_finds_the_longest_and_keeps_to_its_budget(llama: PolicyNetwork) -> None:
    store = PrefixStore(10_000)
    row = Request("p", (1, 2, 3), 3, 1.0, frozenset(), 5)
    (first,) = generate(llama, [row], store)
    longer = replace(row, prompt=(1, 2, 3, *first.tokens, 9))
    generate(llama, [longer], store)
    assert store.find(as_key((1, 2, 3, *first.tokens))) is None  # the longer turn took its place
    found = store.find(as_key((*longer.prompt, *range(10))))
    assert found is None or found.length > 6
    assert store.find(as_key((4, 4, 4, 4))) is None
    small = PrefixStore(1)
    generate(llama, [row], small)
    assert small.find(as_key((1, 2, 3, *first.tokens, 9))) is None


def test_noise_is_keyed_by_seed_and_place() -> None:
    first = uniforms([3, 4], 5)
    assert torch.equal(first[1:], uniforms([4], 5))
    assert torch.equal(first, uniforms([3, 4], 9)[:, :5])
    assert not torch.equal(first[0], first[1])
    assert bool(((first >= 0) & (first < 1)).all())


def test_draw_follows_the_distribution() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.2, 0.1, 0.0]]).log().expand(20_000, -1)
    noise = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    tokens, logprobs = draw(logits, noise, torch.ones(20_000))
    assert torch.bincount(tokens, minlength=5).tolist() == [10_000, 4_000, 4_000, 2_000, 0]
    assert float(logprobs[0].exp()) == pytest.approx(0.5)
    sharp, sharp_logprobs = draw(logits, noise, torch.full((20_000,), 0.5))
    shares = [0.25 / 0.34, 0.04 / 0.34, 0.04 / 0.34, 0.01 / 0.34]
    assert (torch.bincount(sharp, minlength=5)[:4] / 20_000).tolist() == pytest.approx(shares, abs=1e-3)
    assert float(sharp_logprobs[0].exp()) == pytest.approx(shares[0])


@pytest.mark.parametrize("noise", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_are_safe(noise: float) -> None:
    logits = torch.tensor([[-float("inf"), 0.0, 0.0, -float("inf")]])
    tokens, _ = draw(logits, torch.tensor([noise], dtype=torch.float64), torch.ones(1))
    assert int(tokens) in (1, 2)


def test_logits_that_are_not_finite_are_named(llama: PolicyNetwork) -> None:
    weights = {name: torch.full_like(p, float("nan")) for name, p in llama.trainable.items()}
    with llama.using(weights), pytest.raises(ProviderError, match=r"not finite.*train\.lr"):
        generate(llama, requests(2))
    assert generate(llama, requests(2))[0].tokens


def test_scaled_logits_are_not_bypassed(tmp_path: Path) -> None:
    """A model whose logits are more than its output layer: the update must use them as they are."""
    from transformers import CohereConfig, CohereForCausalLM

    torch.manual_seed(0)
    config = CohereConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        logit_scale=0.25,
        pad_token_id=0,
    )
    CohereForCausalLM(config).save_pretrained(tmp_path)
    network = load(tmp_path)
    from auditrl.policy.microbatch import micro_batches
    from auditrl.types import Segment

    row = Request("p", (1, 2, 3), 6, 1.0, frozenset(), 5)
    (sampled,) = generate(network, [row])
    segments = [Segment([1, 2, 3, *sampled.tokens], [0] * 3 + [1] * 6, [0.0] * 3 + sampled.logprobs) for _ in range(4)]
    for share in (True, False):
        (batch,) = micro_batches(segments, 1000, torch.device("cpu"), share_heads=share)
        assert torch.allclose(network.token_logprobs(batch, temperature=1.0), batch.sampling, atol=1e-4)
