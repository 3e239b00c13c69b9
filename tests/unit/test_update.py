"""Updates: what saves memory or time changes no gradient, and small steps are not rounded away."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_policy import VOCABULARY, tiny_config, tiny_llama
from transformers import LlamaForCausalLM

from auditrl.errors import ConfigError
from auditrl.policy import network as network_module
from auditrl.policy.engine import AdamConfig, LossConfig, Segment
from auditrl.policy.microbatch import micro_batches
from auditrl.policy.network import LoraSettings, PolicyNetwork, as_policy, load_network, resolve_dtype
from auditrl.policy.optimizer import MasterAdamW, new_optimizer
from auditrl.policy.update import update

LORA: dict[str, Any] = {"method": "lora", "lora": LoraSettings(rank=4, alpha=8)}
WHOLE = 10_000
"""Tokens that hold every batch here."""


def llama(*, dtype: torch.dtype = torch.float32, attention: str = "sdpa", **how: Any) -> PolicyNetwork:
    torch.manual_seed(0)
    network = as_policy(LlamaForCausalLM(tiny_config(attn_implementation=attention)).to(dtype), base="here", **{"method": "full", **how})
    if network.method == "lora":
        # an adapter starts at zero, and half of its gradient is zero there
        with torch.no_grad():
            for parameter in network.trainable.values():
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.1)
    network.model.train()
    return network


def segments(seed: int = 0, count: int = 9) -> list[Segment]:
    """Segments of 2 to 30 tokens with several turns each, three to a prompt."""
    rng = Random(seed)
    made: list[Segment] = []
    for number in range(count):
        prompt = [Random(number // 3).randrange(VOCABULARY) for _ in range(1 + number)]
        rest = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 21))]
        mask = [0] * len(prompt) + [1, *(rng.randrange(2) for _ in rest[1:])]
        logprobs = [-4.0 * m for m in mask]
        made.append(Segment(prompt + rest, mask, logprobs, advantage=rng.uniform(-1, 1), audit_id=str(number)))
    return made


def gradient(network: PolicyNetwork, tokens: int = WHOLE) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradient of one update by parameter name, read off the optimiser's first moment, and the update's metrics."""
    optimizer = new_optimizer(network)
    adam = AdamConfig(lr=0.0, beta1=0.5, grad_clip=1e9)
    loss = LossConfig(ratio_mask=None)
    metrics = update(network, optimizer, segments(), loss=loss, adam=adam, temperature=1.0, micro_batch_tokens=tokens, start=None)
    moments = [optimizer.state[p]["exp_avg"] for group in optimizer.param_groups for p in group["params"]]
    return {name: 2 * moment for name, moment in zip(network.trainable, moments, strict=True)}, metrics


@pytest.mark.parametrize("method", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize(
    ("tokens", "how"),
    [
        (1, {}),
        (30, {}),
        (64, {}),
        (WHOLE, {"gradient_checkpointing": True}),
        (40, {"gradient_checkpointing": True}),
        (WHOLE, {"attention": "eager"}),
    ],
)
def test_no_way_of_computing_it_changes_the_gradient(tokens: int, how: dict[str, Any], method: dict[str, Any]) -> None:
    expected, metrics = gradient(llama(**method))
    found, other = gradient(llama(**method, **how), tokens)
    largest = max(float(g.abs().max()) for g in expected.values())
    assert largest > 1e-3
    for name, tensor in expected.items():
        assert float((found[name] - tensor).abs().max()) < 2e-6 * largest, name
    assert other == pytest.approx(metrics, rel=1e-5)


def kept_bytes(network: PolicyNetwork) -> int:
    """Bytes of activations that a forward pass keeps for the backward pass (weights left out)."""
    weights = {p.untyped_storage().data_ptr() for p in network.model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    long = [Segment([1] * 120, [0] + [1] * 119, [-4.0] * 120, advantage=1.0) for _ in range(4)]
    (batch,) = micro_batches(long, WHOLE, torch.device("cpu"), share_heads=False)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logprobs = network.token_logprobs(batch, temperature=1.0)
        assert logprobs.requires_grad
        return sum(kept.values())


@pytest.mark.parametrize("method", [{}, LORA], ids=["full", "lora"])
def test_checkpointing_keeps_a_fraction_of_the_activations(method: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    everything = kept_bytes(llama(**method))
    checkpointed = kept_bytes(llama(**method, gradient_checkpointing=True))
    assert checkpointed < 0.5 * everything
    monkeypatch.setattr(network_module, "LOGITS", 16 * VOCABULARY)
    logits = 4 * 119 * VOCABULARY * 4
    assert kept_bytes(llama(**method, gradient_checkpointing=True)) <= checkpointed - 0.5 * logits


@pytest.mark.parametrize("how", [{}, LORA, {"gradient_checkpointing": True}], ids=["full", "lora", "checkpointing"])
def test_a_vocabulary_taken_in_parts_gives_the_same_gradient(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = gradient(llama(**how))
    monkeypatch.setattr(network_module, "LOGITS", 7 * VOCABULARY)
    found, _ = gradient(llama(**how))
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=1e-6, rtol=1e-5), name


@given(st.integers(0, 50), st.integers(1, 30), st.integers(1, 200), st.booleans())
def test_micro_batches_hold_every_trained_token_once_and_keep_to_the_budget(seed: int, count: int, budget: int, share: bool) -> None:
    given_segments = segments(seed, count)
    found: list[tuple[int, float, float]] = []
    lengths: list[int] = []
    for batch in micro_batches(given_segments, budget, torch.device("cpu"), share_heads=share):
        heads = 0 if batch.heads is None else batch.heads.numel()
        assert batch.ids.numel() + heads <= budget or len(batch.ids) == 1
        if batch.heads is None:
            lengths.append(batch.ids.shape[1])
        found += zip(batch.ids[batch.rows, batch.columns].tolist(), batch.sampling.tolist(), batch.advantages.tolist(), strict=True)
    wanted = [
        (token, logprob, float(torch.tensor(s.advantage)))
        for s in given_segments
        for token, mask, logprob in zip(s.tokens, s.mask, s.logprobs, strict=True)
        if mask
    ]
    assert sorted(found) == sorted(wanted)
    assert lengths == sorted(lengths, reverse=True)


def small_steps(network: PolicyNetwork, steps: int, lr: float) -> torch.optim.AdamW:
    optimizer = new_optimizer(network)
    adam = AdamConfig(lr=lr)
    for _ in range(steps):
        loss = LossConfig(ratio_mask=None)
        update(network, optimizer, segments(), loss=loss, adam=adam, temperature=1.0, micro_batch_tokens=64, start=None)
    return optimizer


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> float:
    """Mean absolute change of the weights."""
    changes = [(after[name].float() - tensor.float()).abs().flatten() for name, tensor in before.items()]
    return float(torch.cat(changes).mean())


def test_full_fine_tuning_in_bfloat16_does_not_round_small_steps_away() -> None:
    steps, lr = 20, 2e-5
    exact, half = llama(), llama(dtype=torch.bfloat16)
    start, start_half = exact.snapshot(), half.snapshot()
    small_steps(exact, steps, lr)
    optimizer = small_steps(half, steps, lr)
    assert isinstance(optimizer, MasterAdamW)
    masters = dict(zip(half.trainable, optimizer.masters, strict=True))
    wanted = moved(start, exact.snapshot())
    assert wanted > 0.3 * steps * lr
    assert moved(start_half, masters) == pytest.approx(wanted, rel=0.1)
    for name, parameter in half.trainable.items():
        assert parameter.dtype == torch.bfloat16 and torch.equal(parameter.detach(), masters[name].to(torch.bfloat16))


def test_masters_are_saved_and_restored(tmp_path: Path) -> None:
    network = llama(dtype=torch.bfloat16)
    optimizer = small_steps(network, 3, 1e-4)
    assert isinstance(optimizer, MasterAdamW)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    saved = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    again = new_optimizer(network)
    assert isinstance(again, MasterAdamW)
    again.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(again.masters, optimizer.masters, strict=True))
    assert not all(torch.equal(m, p.float()) for m, p in zip(again.masters, network.trainable.values(), strict=True))
    again.load_state_dict({name: value for name, value in saved.items() if name != "masters"})
    assert all(torch.equal(m, p.float()) for m, p in zip(again.masters, network.trainable.values(), strict=True))


def test_an_adapter_on_a_bfloat16_model_is_float32() -> None:
    network = llama(dtype=torch.bfloat16, **LORA)
    assert {p.dtype for p in network.trainable.values()} == {torch.float32}
    assert not isinstance(new_optimizer(network), MasterAdamW)
    _, metrics = gradient(network)
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
    ("dtype", "device", "able", "used"),
    [
        ("auto", "cpu", True, "auto"),
        ("auto", "cuda", True, "bfloat16"),
        ("auto", "cuda", False, "auto"),
        ("float32", "cuda", True, "float32"),
        ("bfloat16", "cpu", False, "bfloat16"),
    ],
)
def test_auto_is_bfloat16_on_a_gpu_that_computes_in_it(
    dtype: str, device: str, able: bool, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: able)
    assert resolve_dtype(dtype, torch.device(device)) == used


def test_attention_is_chosen_by_name(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)

    def load(attention: Any) -> PolicyNetwork:
        return load_network(
            folder, method="full", lora=None, dtype="auto", device="cpu", gradient_checkpointing=False, seed=0, attention=attention
        )

    assert load("auto").config._attn_implementation == "sdpa"
    assert load("eager").config._attn_implementation == "eager"
    if importlib.util.find_spec("flash_attn") is None:
        with pytest.raises(ConfigError, match=r'policy\.local\.attention = "flash_attention_2".*Use "auto"'):
            load("flash_attention_2")
