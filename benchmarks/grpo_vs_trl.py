"""One GRPO step (64 completions and the update) of auditrl's local engine against TRL's `GRPOTrainer`.

Same tiny Llama, prompts, lengths, loss (clipped, token mean), optimiser settings, device and threads; the steps of both alternate
inside one process, and the table gives medians. No end token can be sampled (it lies outside of the model's vocabulary), so that both
generate and train on exactly the same number of tokens. TRL runs without gradient checkpointing and in float32, like ours.

    python benchmarks/grpo_vs_trl.py [--repeats 9] [--threads 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from auditrl.policy.engine import AdamConfig, LossConfig, PolicyRef
from auditrl.policy.local import LocalEngine
from auditrl.policy.segments import merge_turns

WORDS = 240
GROUPS, GROUP_SIZE = 8, 8
LR, BETAS = 1e-4, (0.9, 0.95)


@dataclass(frozen=True)
class Shape:
    """Model size, and tokens of a prompt and a completion."""

    name: str
    hidden: int
    layers: int
    prompt: int
    completion: int


SHAPES = (
    Shape("0.4M, 64 + 64 tokens", 96, 3, 64, 64),
    Shape("0.4M, 128 + 32 tokens", 96, 3, 128, 32),
    Shape("0.9M, 64 + 64 tokens", 128, 4, 64, 64),
)


def make_model(folder: Path, shape: Shape) -> None:
    """Save an untrained Llama and its word-level tokenizer. The end token's id is one past the model's vocabulary."""
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=4,
        intermediate_size=3 * shape.hidden,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    cast(Any, torch).manual_seed(0)
    cast(Any, LlamaForCausalLM(config)).save_pretrained(folder)
    vocabulary = {"<pad>": 0, "<unk>": 1, **{f"w{i}": i for i in range(2, WORDS)}, "<end>": WORDS}
    tokenizer: Any = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="<end>")
    fast.save_pretrained(folder)


def reward(tokens: list[int]) -> float:
    """Share of even tokens: anything cheap that differs between completions."""
    return sum(t % 2 == 0 for t in tokens) / len(tokens)


class Ours:
    """One GRPO step of the local engine."""

    def __init__(self, folder: Path, shape: Shape, threads: int) -> None:
        self.shape = shape
        self.engine = LocalEngine(folder, threads=threads, dtype="float32", micro_batch_tokens=4096)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.engine.start())
        self.sampler = self.engine.sampler(PolicyRef("current"))
        self.count = 0

    def step(self) -> None:
        """Sample 8 x 8 completions, score them, update once."""
        self.loop.run_until_complete(self._step())

    async def _step(self) -> None:
        self.count += 1
        rng = Random(self.count)
        prompts = [[rng.randrange(2, WORDS) for _ in range(self.shape.prompt)] for _ in range(GROUPS)]
        rows = [prompt for prompt in prompts for _ in range(GROUP_SIZE)]
        samples = await asyncio.gather(
            *(
                self.sampler.sample(row, max_tokens=self.shape.completion, temperature=1.0, stop=[], seed=self.count * 1000 + i)
                for i, row in enumerate(rows)
            )
        )
        segments = []
        for start in range(0, len(rows), GROUP_SIZE):
            group = range(start, start + GROUP_SIZE)
            rewards = [reward(samples[i].tokens) for i in group]
            mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
            for i, value in zip(group, rewards, strict=True):
                segments += merge_turns([(rows[i], samples[i])], advantage=(value - mean) / (deviation + 1e-4))
        metrics = await self.engine.train_step(segments, loss=LossConfig(), adam=AdamConfig(lr=LR, beta1=BETAS[0], beta2=BETAS[1]))
        assert metrics.values["trained_tokens"] == len(rows) * self.shape.completion
        assert not metrics.values["skipped"]

    def close(self) -> None:
        """Release the engine."""
        self.loop.run_until_complete(self.engine.close())
        self.loop.close()


class Alternate(TrainerCallback):
    """Times TRL's steps from begin to end, and runs a step of ours before each."""

    def __init__(self, ours: Callable[[], None]) -> None:
        self.ours = ours
        self.times: dict[str, list[float]] = {"auditrl": [], "TRL": []}
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        began = time.perf_counter()
        self.ours()
        self._began = time.perf_counter()
        self.times["auditrl"].append(self._began - began)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times["TRL"].append(time.perf_counter() - self._began)


def trl_trainer(folder: Path, shape: Shape, steps: int, callback: Alternate) -> Any:
    """TRL's trainer with the same batch, lengths, loss and optimiser."""
    rng = Random(1)
    prompts = [" ".join(f"w{rng.randrange(2, WORDS)}" for _ in range(shape.prompt)) for _ in range(GROUPS * steps)]
    library: Any = trl
    tokenizers: Any = PreTrainedTokenizerFast

    def reward_func(completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert all(len(ids) == shape.completion for ids in completion_ids)
        return [reward(ids) for ids in completion_ids]

    return library.GRPOTrainer(
        model=str(folder),
        processing_class=tokenizers.from_pretrained(folder),
        reward_funcs=reward_func,
        train_dataset=datasets.Dataset.from_dict({"prompt": prompts}),
        callbacks=[callback],
        args=library.GRPOConfig(
            output_dir=str(folder / "trl"),
            max_steps=steps,
            per_device_train_batch_size=GROUPS * GROUP_SIZE,
            num_generations=GROUP_SIZE,
            steps_per_generation=1,
            max_completion_length=shape.completion,
            generation_kwargs={"eos_token_id": None},
            model_init_kwargs={"dtype": "float32"},
            loss_type="dapo",
            epsilon=0.2,
            epsilon_high=0.28,
            beta=0.0,
            temperature=1.0,
            learning_rate=LR,
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            max_grad_norm=1.0,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )


def compare(shape: Shape, repeats: int, threads: int) -> tuple[int, dict[str, float]]:
    """Parameters, and median seconds a step of both; the first step of each is left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder, shape)
        ours = Ours(folder, shape, threads)
        timing = Alternate(ours.step)
        trainer = trl_trainer(folder, shape, repeats + 1, timing)
        torch.set_num_threads(threads)
        trainer.train()
        ours.close()
        parameters = sum(p.numel() for p in trainer.model.parameters())
        return parameters, {engine: statistics.median(times[1:]) for engine, times in timing.times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    cast(Any, transformers.utils.logging).disable_progress_bar()
    print(f"trl {trl.__version__}, transformers {transformers.__version__}, torch {torch.__version__}; {options.threads} thread(s),")
    print(f"{GROUPS} groups of {GROUP_SIZE}, median of {options.repeats} alternating steps\n")
    print("| model, prompt + completion | parameters | auditrl tokens/s | TRL tokens/s | ratio |")
    print("|---|---|---|---|---|")
    for shape in SHAPES:
        parameters, seconds = compare(shape, options.repeats, options.threads)
        tokens = GROUPS * GROUP_SIZE * (shape.prompt + shape.completion)
        ours, theirs = tokens / seconds["auditrl"], tokens / seconds["TRL"]
        print(f"| {shape.name} | {parameters:,} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
