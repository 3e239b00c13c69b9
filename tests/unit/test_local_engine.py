"""The local engine: samplers, snapshots, updates, checkpoints."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_policy import VOCABULARY, chat_tokenizer, tiny_llama, tiny_mistral

from auditrl.audit.context import audit_context
from auditrl.errors import ConfigError, ProviderError, RewardError, RunError
from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef, TrainEngine
from auditrl.policy.local import TIMING_METRICS, LocalEngine, LocalSampler, LoraSettings
from auditrl.policy.segments import merge_turns
from auditrl.types import Sampled, Segment

CURRENT = PolicyRef("current")
ADAM = AdamConfig(lr=3e-3)
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9, 8, 7], [20, 21, 22, 23, 24]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("model"))


def engine_of(folder: Path, **changes: Any) -> LocalEngine:
    return LocalEngine(folder, **{"threads": 1, "dtype": "float32", **changes})


LORA: dict[str, Any] = {"method": "lora", "lora": LoraSettings(rank=4, alpha=8)}


def run[T](work: Callable[[LocalEngine], Awaitable[T]], engine: LocalEngine) -> T:
    async def started() -> T:
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(started())


async def samples(sampler: LocalSampler, *, seed: int = 0, temperature: float = 1.0, tokens: int = 6) -> list[tuple[list[int], Sampled]]:
    """Four samples of each prompt."""
    rows = [prompt for prompt in PROMPTS for _ in range(4)]
    got = await asyncio.gather(
        *(sampler.sample(row, max_tokens=tokens, temperature=temperature, stop=[0], seed=seed + i) for i, row in enumerate(rows))
    )
    return list(zip(rows, got, strict=True))


def segments_of(turns: Sequence[tuple[list[int], Sampled]]) -> list[Segment]:
    """A segment each, with advantages that differ."""
    return [s for i, turn in enumerate(turns) for s in merge_turns([turn], advantage=(i % 4) - 1.5, audit_id=str(i))]


async def one_step(engine: LocalEngine, seed: int, *, loss: LossConfig | None = None, temperature: float = 1.0) -> dict[str, float]:
    """Sample, update; metrics without those of the clock."""
    turns = await samples(engine.sampler(CURRENT), seed=seed, temperature=temperature)
    metrics = await engine.train_step(segments_of(turns), loss=loss or LossConfig(), adam=ADAM)
    return {name: value for name, value in metrics.values.items() if name not in TIMING_METRICS}


def weights(engine: LocalEngine) -> dict[str, torch.Tensor]:
    return engine._training.network.snapshot()  # pyright: ignore[reportPrivateUsage]


def test_it_is_a_train_engine(folder: Path) -> None:
    engine: TrainEngine = engine_of(folder)
    assert isinstance(engine, LocalEngine)


@pytest.mark.parametrize("changes", [{}, LORA, {"temperature": 0.7}, {"micro_batch_tokens": 16}, {"gradient_checkpointing": True}])
def test_on_policy_the_ratio_is_one(folder: Path, changes: dict[str, Any]) -> None:
    temperature = changes.get("temperature", 1.0)
    metrics = run(lambda e: one_step(e, 0, temperature=temperature), engine_of(folder, **changes))
    assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["kl_sampling"] == pytest.approx(0, abs=1e-7)
    assert (metrics["clip_share"], metrics["masked_share"], metrics["skipped"]) == (0, 0, 0)
    assert metrics["grad_norm"] > 0
    assert 12 <= metrics["trained_tokens"] < metrics["tokens"]


def test_the_same_calls_give_the_same_metrics_to_the_last_digit(folder: Path) -> None:
    async def steps(engine: LocalEngine) -> list[dict[str, float]]:
        return [await one_step(engine, seed, loss=LossConfig(kl_coef=0.1)) for seed in range(3)]

    first = run(steps, engine_of(folder))
    assert first == run(steps, engine_of(folder))
    assert first[0]["kl_start"] == pytest.approx(0, abs=1e-9)
    assert min(first[1]["kl_start"], first[2]["kl_start"]) > 1e-4
    assert "kl_start" not in run(lambda e: one_step(e, 0), engine_of(folder))


@pytest.mark.parametrize("changes", [{"micro_batch_tokens": 12}, {"gradient_checkpointing": True}])
def test_how_a_batch_is_cut_does_not_change_the_update(folder: Path, changes: dict[str, Any]) -> None:
    """One head for every group of four is shared in the first engine; in the others each row computes its own."""

    async def step(engine: LocalEngine) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
        return await one_step(engine, 0), weights(engine)

    metrics, after = run(step, engine_of(folder))
    other_metrics, other_after = run(step, engine_of(folder, **changes))
    assert other_metrics == pytest.approx(metrics, abs=1e-4)
    for name, tensor in after.items():
        assert torch.allclose(other_after[name], tensor, atol=1e-4)


def test_a_reward_for_one_token_makes_it_likelier(folder: Path) -> None:
    async def bandit(engine: LocalEngine) -> list[float]:
        sampler = engine.sampler(CURRENT)
        shares: list[float] = []
        for step in range(12):
            got = await asyncio.gather(
                *(sampler.sample([1, 2, 3], max_tokens=1, temperature=1.0, stop=[], seed=1000 * step + i) for i in range(64))
            )
            good = [sample.tokens[0] < VOCABULARY // 4 for sample in got]
            shares.append(sum(good) / len(good))
            turns = [([1, 2, 3], sample) for sample in got]
            rewarded = [replace(s, advantage=float(g) - shares[-1]) for s, g in zip(segments_of(turns), good, strict=True)]
            await engine.train_step(rewarded, loss=LossConfig(), adam=AdamConfig(lr=1e-2))
        return shares

    shares = run(bandit, engine_of(folder))
    assert shares[0] < 0.6
    assert shares[-1] > 0.95


def test_a_snapshot_stays_as_it_was(folder: Path) -> None:
    async def work(engine: LocalEngine) -> None:
        before = await samples(engine.sampler(CURRENT))
        frozen = engine.sampler(await engine.publish("step-0"))
        for seed in range(3):
            await one_step(engine, seed)
        assert [s for _, s in await samples(frozen)] == [s for _, s in before]
        assert [s for _, s in await samples(engine.sampler(CURRENT))] != [s for _, s in before]
        mixed = await asyncio.gather(samples(frozen), samples(engine.sampler(CURRENT)))
        assert mixed[0] == before != mixed[1]
        engine.release("step-0")
        with pytest.raises(ProviderError, match="step-0.*released"):
            await samples(frozen)
        with pytest.raises(RunError, match='"step-0"'):
            engine.sampler(PolicyRef("step-0"))
        with pytest.raises(ConfigError, match="current"):
            await engine.publish("current")

    run(work, engine_of(folder))


@pytest.mark.parametrize("changes", [{}, LORA, {"dtype": "bfloat16"}], ids=["full", "lora", "bfloat16"])
def test_a_resumed_run_continues_to_the_last_digit(folder: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    async def unbroken(engine: LocalEngine) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
        metrics = [await one_step(engine, 0)]
        assert await engine.save(str(tmp_path / "checkpoint")) == str(tmp_path / "checkpoint")
        metrics += [await one_step(engine, seed) for seed in (1, 2)]
        return metrics, weights(engine)

    async def resumed(engine: LocalEngine) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
        await samples(engine.sampler(CURRENT))  # what was sampled before must not be continued from
        await engine.load(str(tmp_path / "checkpoint"))
        assert engine.step == 1
        return [await one_step(engine, seed) for seed in (1, 2)], weights(engine)

    metrics, after = run(unbroken, engine_of(folder, **changes))
    again, after_again = run(resumed, engine_of(folder, **changes))
    assert again == metrics[1:]
    assert all(torch.equal(after[name], after_again[name]) for name in after)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_is_a_hugging_face_folder(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = tiny_llama(tmp_path / "start")
    chat_tokenizer().save_pretrained(start)
    (start / "auditrl_renderer.json").write_text('{"renderer": "sim"}')
    saved = tmp_path / "runs" / "saved"

    async def work(engine: LocalEngine) -> list[float]:
        await one_step(engine, 0)
        await engine.save(str(saved))
        await engine.save(str(saved))  # replaces the first
        (_, sample), *_ = await samples(engine.sampler(CURRENT), temperature=0.0)
        from_file = await samples(engine.sampler(PolicyRef("saved", uri=str(saved))), temperature=0.0)
        assert from_file[0][1] == sample
        return sample.logprobs

    logprobs = run(work, engine_of(start))
    model: Any = AutoModelForCausalLM.from_pretrained(saved)
    with torch.no_grad():
        first = torch.log_softmax(model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1], dim=-1).max()
    assert float(first) == pytest.approx(logprobs[0], abs=1e-5)
    assert AutoTokenizer.from_pretrained(saved).chat_template
    assert (saved / "auditrl_renderer.json").read_text() == '{"renderer": "sim"}'


def test_a_lora_checkpoint_is_a_peft_adapter_and_leaves_the_base_alone(folder: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    async def work(engine: LocalEngine) -> Sampled:
        for seed in range(3):
            await one_step(engine, seed)
        await engine.save(str(tmp_path / "adapter"))
        return (await samples(engine.sampler(CURRENT), temperature=0.0))[0][1]

    sample = run(work, engine_of(folder, **LORA))
    base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        before = torch.log_softmax(base(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1], dim=-1)
        model: Any = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
        after = torch.log_softmax(model(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1], dim=-1)
    assert float(after.max()) == pytest.approx(sample.logprobs[0], abs=1e-5)
    assert not torch.allclose(before, after, atol=1e-3)
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    reopened = run(lambda e: samples(e.sampler(CURRENT), temperature=0.0), engine_of(tmp_path / "adapter", method="lora"))
    assert reopened[0][1] == sample


def truncate(name: str) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        path = checkpoint / name
        path.write_bytes(path.read_bytes()[:-7])

    return damage


def edit_manifest(**changes: Any) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        path = checkpoint / "engine.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate("model.safetensors"), r"model\.safetensors is truncated or was changed.*earlier checkpoint"),
        (truncate("optimizer.pt"), r"optimizer\.pt is truncated"),
        (truncate("engine.json"), r"engine\.json can't be read.*earlier checkpoint"),
        (lambda c: (c / "optimizer.pt").unlink(), r"optimizer\.pt is missing"),
        (lambda c: (c / "engine.json").unlink(), r"engine\.json is missing.*not a checkpoint"),
        (shutil.rmtree, r"engine\.json is missing"),
        (edit_manifest(method="lora"), r'policy\.method = "lora"'),
        (edit_manifest(fingerprint="another"), r"another base model.*policy\.model"),
        (edit_manifest(format=99), "format 99"),
        (edit_manifest(surprise=1), "can't be read"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_changes_nothing(
    folder: Path, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    async def work(engine: LocalEngine) -> None:
        await engine.save(str(tmp_path / "checkpoint"))
        damage(tmp_path / "checkpoint")
        before = weights(engine)
        with pytest.raises(RunError, match=message):
            await engine.load(str(tmp_path / "checkpoint"))
        assert all(torch.equal(before[name], tensor) for name, tensor in weights(engine).items())

    run(work, engine_of(folder))


def test_an_adapter_of_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other", seed=1)
    run(lambda e: e.save(str(tmp_path / "adapter")), engine_of(folder, **LORA))
    with pytest.raises(RunError, match="another base model"):
        run(lambda e: e.load(str(tmp_path / "adapter")), engine_of(other, **LORA))


def test_a_folder_that_can_not_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="can't be written"):
        run(lambda e: e.save(str(tmp_path / "file" / "checkpoint")), engine_of(folder))


def test_an_update_that_is_not_finite_changes_nothing(folder: Path) -> None:
    async def work(engine: LocalEngine) -> None:
        turns = await samples(engine.sampler(CURRENT))
        huge = [replace(s, advantage=3e38) for s in segments_of(turns)]
        before = weights(engine)
        metrics = await engine.train_step(huge, loss=LossConfig(), adam=ADAM)
        assert metrics.values["skipped"] == 1
        assert all(torch.equal(before[name], tensor) for name, tensor in weights(engine).items())
        assert (await one_step(engine, 1))["skipped"] == 0

    run(work, engine_of(folder))


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        (Segment([1, 2], [0, 1], [0.0, -1.0], advantage=float("nan"), audit_id="a1"), "a1.*advantage is nan"),
        (Segment([1, 2], [0, 1], [0.0], audit_id="a1"), "a1.*differ in length"),
        (Segment([1, 2], [1, 1], [-1.0, -1.0], audit_id="a1"), "a1.*prompt is missing"),
    ],
)
def test_segments_that_can_not_be_trained_on(folder: Path, segment: Segment, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        run(lambda e: e.train_step([segment], loss=LossConfig(), adam=ADAM), engine_of(folder))


def test_without_a_trained_token_there_is_no_update(folder: Path) -> None:
    segments = [Segment([1, 2], [0, 0], [0.0, 0.0], advantage=1.0)]
    metrics = run(lambda e: e.train_step(segments, loss=LossConfig(), adam=ADAM), engine_of(folder))
    assert (metrics.values["skipped"], metrics.values["trained_tokens"]) == (1, 0)


def test_audits_that_joined_are_generated_together(folder: Path) -> None:
    async def audit(engine: LocalEngine, number: int, turns: int) -> list[int]:
        tokens = [number]
        with audit_context(f"audit-{number}", seed=number):
            async with engine.joined(f"audit-{number}"):
                for turn in range(turns):
                    await asyncio.sleep(0.002 * ((number + turn) % 3))
                    sample = await engine.sampler(CURRENT).sample(tokens, max_tokens=4, temperature=1.0, stop=[], seed=100 * number + turn)
                    tokens = [*tokens, *sample.tokens, 5]
        return tokens

    async def work(engine: LocalEngine) -> list[list[int]]:
        with engine.session(4):
            got = await asyncio.gather(*(audit(engine, i, 1 + i) for i in range(4)))
        assert (engine.batching.batches, engine.batching.requests, engine.batching.stalls) == (4, 10, 0)
        assert engine.reused_tokens > 0
        return list(got)

    first = run(work, engine_of(folder))
    assert first == run(work, engine_of(folder))
    split = run(work, engine_of(folder, batch_tokens=16, prefix_tokens=10_000))
    assert split == first


def test_models_that_look_back_a_little_can_be_trained_too(tmp_path: Path) -> None:
    metrics = run(lambda e: one_step(e, 0), engine_of(tiny_mistral(tmp_path)))
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)


def test_bfloat16(folder: Path) -> None:
    metrics = run(lambda e: one_step(e, 0), engine_of(folder, dtype="bfloat16"))
    assert metrics["ratio_mean"] == pytest.approx(1, abs=0.05)
    assert metrics["skipped"] == 0


def test_bad_models_and_settings_are_named(folder: Path, tmp_path: Path) -> None:
    def start(**changes: Any) -> None:
        run(lambda e: asyncio.sleep(0), engine_of(**{"folder": folder, **changes}))

    with pytest.raises(ConfigError, match=r"policy\.model: there is no model folder .*missing"):
        start(folder=tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        start(folder=tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"policy\.model: can't load"):
        start(folder=tmp_path)
    with pytest.raises(ConfigError, match=r"policy\.local\.device: cuda:99"):
        start(device="cuda:99")
    with pytest.raises(ConfigError, match=r"policy\.temperature"):
        start(temperature=0)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"adapter_config\.json: not a readable PEFT"):
        start(folder=tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    with pytest.raises(ConfigError, match=r'policy\.method = "lora"'):
        start(folder=tmp_path)


def test_before_start_and_without_a_prompt(folder: Path) -> None:
    with pytest.raises(ConfigError, match="start"):
        engine_of(folder).sampler(CURRENT)

    async def empty(engine: LocalEngine) -> None:
        await engine.sampler(CURRENT).sample([], max_tokens=1, temperature=1.0, stop=[], seed=0)

    with pytest.raises(ProviderError, match="empty prompt"):
        run(empty, engine_of(folder))
