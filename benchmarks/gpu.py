"""What the local engine reaches on one accelerator: updates, generation, and memory by sequence length.

    python benchmarks/gpu.py --out gpu.json
    python benchmarks/gpu.py --smoke           # a tiny model on the CPU, in seconds: only to see that everything works

Models of 1B, 3B and 8B shape (Llama 3) with random weights in bfloat16 and a LoRA adapter, so nothing is downloaded. Measured is the
engine's own code: `policy.update.update` and `policy.generate.generate`. Shares of peak compare the operations that a model of this size
needs (recomputation of gradient checkpointing not counted; no weight gradients where weights are frozen) with what a large matrix product
reached in the same run, and the bytes that decoding must read with what a large copy reached. A cell that would pass the time budget is
skipped, one that does not fit says so.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from llama_shapes import SHAPES, TINY, Shape
from transformers import LlamaForCausalLM

from auditrl.policy.engine import AdamConfig, LossConfig, Segment
from auditrl.policy.generate import Request, generate
from auditrl.policy.network import LoraSettings, PolicyNetwork, as_policy
from auditrl.policy.optimizer import new_optimizer
from auditrl.policy.update import update

TURN = 256
"""Tokens of a prompt and of an answer in a segment, in turns: half of a segment is trained on."""
PESSIMISM = 0.1
"""Share of peak that the time of a cell is guessed with before it is measured."""
TIME, MEMORY = "skipped: time", "does not fit"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured. Rows x tokens of updates; rows, prompt and new tokens of generation; lengths of one row for memory."""

    shapes: tuple[Shape, ...]
    updates: tuple[tuple[int, int], ...] = ((16, 1024), (2, 8192))
    generation: tuple[tuple[int, int, int], ...] = ((64, 1024, 128), (256, 1024, 128))
    lengths: tuple[int, ...] = (2048, 8192, 16_384, 32_768, 65_536)
    rank: int = 32
    dtype: torch.dtype = torch.bfloat16
    device: str = "cuda"
    matrix: int = 8192
    copy_bytes: int = 2**31
    seconds: float = 420.0


SMOKE = Plan((TINY,), ((2, 64),), ((4, 16, 4),), (32, 64), rank=4, dtype=torch.float32, device="cpu", matrix=256, copy_bytes=2**20)


@dataclass(slots=True)
class Bench:
    """The device, what it can do at most, and the time that is left."""

    plan: Plan
    began: float = field(default_factory=time.perf_counter)
    peak: float = 0.0
    """Operations a second."""
    bandwidth: float = 0.0
    """Bytes a second."""

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.plan.device.startswith("cuda")

    def allows(self, operations: float) -> bool:
        """Whether there is time for so many operations."""
        return time.perf_counter() - self.began + operations / (PESSIMISM * self.peak) < self.plan.seconds

    def seconds(self, work: Callable[[], object]) -> float:
        """Time of one call, the device's work included."""
        self.wait()
        began = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - began

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.cuda:
            torch.cuda.synchronize()

    def measure_limits(self) -> None:
        """Best of several large matrix products and copies."""
        size = self.plan.matrix
        a, b = (torch.randn(size, size, device=self.plan.device, dtype=self.plan.dtype) for _ in range(2))
        self.peak = 2 * size**3 / min(self.seconds(lambda: a @ b) for _ in range(10))
        source = torch.zeros(self.plan.copy_bytes, dtype=torch.uint8, device=self.plan.device)
        target = torch.empty_like(source)
        self.bandwidth = 2 * self.plan.copy_bytes / min(self.seconds(lambda: target.copy_(source)) for _ in range(5))

    def peak_memory(self, work: Callable[[], object]) -> tuple[float, float]:
        """Most GiB that were in use during a call, and its seconds. On a CPU: of the whole process."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
            seconds = self.seconds(work)
            return torch.cuda.max_memory_allocated() / 2**30, seconds
        Path("/proc/self/clear_refs").write_text("5")
        seconds = self.seconds(work)
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**20, seconds

    def try_out(self, operations: float, work: Callable[[], dict[str, float]]) -> dict[str, float] | str:
        """A measurement, or why there is none."""
        if not self.allows(operations):
            return TIME
        try:
            return work()
        except torch.OutOfMemoryError:
            pass
        # only here, where the exception no longer holds the tensors of its frames
        self.free()
        return MEMORY

    def free(self) -> None:
        """Give back what nothing refers to."""
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()


@dataclass(slots=True)
class Subject:
    """One model on the device."""

    bench: Bench
    shape: Shape
    network: PolicyNetwork
    optimizer: torch.optim.AdamW

    @classmethod
    def build(cls, bench: Bench, shape: Shape) -> Subject:
        """A model with random weights and an adapter."""
        config = shape.config(max_position_embeddings=131_072)
        before = torch.get_default_dtype()
        torch.set_default_dtype(bench.plan.dtype)
        try:
            with torch.device(bench.plan.device):
                causal = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        lora = LoraSettings(rank=bench.plan.rank, alpha=2 * bench.plan.rank)
        network = as_policy(causal, base=shape.name, method="lora", lora=lora)
        return cls(bench, shape, network, new_optimizer(network))

    @property
    def adapter(self) -> int:
        """Parameters that are trained."""
        return sum(p.numel() for p in self.network.trainable.values())

    @property
    def parameters(self) -> int:
        """All parameters."""
        return sum(p.numel() for p in self.network.model.parameters())

    def step(self, rows: int, length: int) -> None:
        """One update of so many segments, in one micro-batch."""
        batch = segments(rows, length, self.shape.vocabulary)
        self.network.model.train()
        try:
            metrics = update(
                self.network,
                self.optimizer,
                batch,
                loss=LossConfig(ratio_mask=None),
                adam=AdamConfig(lr=1e-6),
                temperature=1.0,
                micro_batch_tokens=rows * length,
                start=None,
            )
        finally:
            self.network.model.eval()
            self.optimizer.zero_grad(set_to_none=True)
        assert metrics["tokens"] == rows * length
        assert not metrics["skipped"]

    def measure_update(self, rows: int, length: int, *, checkpointing: bool) -> dict[str, float] | str:
        """Tokens a second, share of peak, GiB."""
        operations = self.shape.update_operations(rows, length, self.adapter)

        def work() -> dict[str, float]:
            memory, _ = self.bench.peak_memory(lambda: self.step(rows, length))
            seconds = statistics.median(self.bench.seconds(lambda: self.step(rows, length)) for _ in range(3))
            return {"tokens_per_s": rows * length / seconds, "share_of_peak": operations / seconds / self.bench.peak, "gib": memory}

        self.network.checkpoint_activations(checkpointing)
        return self.bench.try_out(4 * operations, work)

    def measure_generation(self, rows: int, prompt: int, new: int) -> dict[str, float] | str:
        """Tokens a second with and without the prompts' part, and shares of peak of the decoding alone. Groups of 8 share a prompt."""
        prompts = [tuple(words(number // 8, prompt, self.shape.vocabulary)) for number in range(rows)]
        width = torch.finfo(self.bench.plan.dtype).bits // 8
        operations = self.shape.decode_operations(rows, prompt, new - 1, self.adapter)

        def run(count: int) -> float:
            requests = [Request("current", text, count, 1.0, frozenset(), seed) for seed, text in enumerate(prompts)]
            return self.bench.seconds(lambda: generate(self.network, requests))

        def work() -> dict[str, float]:
            run(2)
            first, whole = run(1), run(new)
            seconds = max(whole - first, 1e-9)
            read = (new - 1) * self.shape.decode_bytes(rows, prompt + new / 2, width)
            return {
                "tokens_per_s": rows * new / whole,
                "decode_tokens_per_s": rows * (new - 1) / seconds,
                "share_of_peak": operations / seconds / self.bench.peak,
                "share_of_bandwidth": read / seconds / self.bench.bandwidth,
            }

        return self.bench.try_out(5 * operations, work)

    def measure_memory(self, length: int, *, checkpointing: bool) -> dict[str, float] | str:
        """GiB and seconds of an update with one row."""

        def work() -> dict[str, float]:
            memory, seconds = self.bench.peak_memory(lambda: self.step(1, length))
            return {"gib": memory, "seconds": seconds}

        self.network.checkpoint_activations(checkpointing)
        return self.bench.try_out(self.shape.update_operations(1, length, self.adapter), work)


def words(seed: int, count: int, vocabulary: int) -> list[int]:
    """Random tokens."""
    rng = Random(seed)
    return [rng.randrange(vocabulary) for _ in range(count)]


def segments(rows: int, length: int, vocabulary: int) -> list[Segment]:
    """Segments of alternating prompts and answers; no two begin alike. The sampling probability is that of an untrained model."""
    turn = min(TURN, length // 2)
    mask = [(place // turn) % 2 for place in range(length)]
    mask[-1] = 1
    logprob = -float(torch.tensor(float(vocabulary)).log())
    return [
        Segment(words(row, length, vocabulary), mask, [logprob * m for m in mask], advantage=1.0 if row % 2 else -1.0, audit_id=str(row))
        for row in range(rows)
    ]


def measure(plan: Plan) -> dict[str, Any]:
    """Everything of a plan, as it is written to the JSON file."""
    bench = Bench(plan)
    bench.measure_limits()
    models: list[dict[str, Any]] = []
    for shape in plan.shapes:
        if not bench.allows(0):
            models.append({"model": shape.name, "skipped": TIME})
            continue
        subject = Subject.build(bench, shape)
        models.append(
            {
                "model": shape.name,
                "shape": asdict(shape),
                "parameters": subject.parameters,
                "trained": subject.adapter,
                "attention": subject.network.config._attn_implementation,
                "updates": [
                    {"rows": rows, "tokens": length, "checkpointing": on, "result": subject.measure_update(rows, length, checkpointing=on)}
                    for rows, length in plan.updates
                    for on in (False, True)
                ],
                "generation": [
                    {"rows": rows, "prompt": prompt, "new": new, "result": subject.measure_generation(rows, prompt, new)}
                    for rows, prompt, new in plan.generation
                ],
                "memory": [
                    {"tokens": length, "checkpointing": on, "result": subject.measure_memory(length, checkpointing=on)}
                    for length in plan.lengths
                    for on in (False, True)
                ],
            }
        )
        print(f"{shape.name}: done after {time.perf_counter() - bench.began:.0f} s", file=sys.stderr, flush=True)
        del subject
        bench.free()
    return {
        "device": torch.cuda.get_device_name() if bench.cuda else f"CPU, {torch.get_num_threads()} thread(s)",
        "dtype": str(plan.dtype).removeprefix("torch."),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "lora_rank": plan.rank,
        "peak_tflops": bench.peak / 1e12,
        "bandwidth_gb_per_s": bench.bandwidth / 1e9,
        "seconds": time.perf_counter() - bench.began,
        "models": models,
    }


def cells(result: dict[str, float] | str, *columns: tuple[str, str]) -> str:
    """Columns of one measurement, each (name, format); why there is none in the first."""
    if isinstance(result, str):
        return " | ".join([result, *[""] * (len(columns) - 1)])
    return " | ".join(format(result[name], how) for name, how in columns)


def tables(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    models = cast("list[dict[str, Any]]", found["models"])
    lines = [
        f"{found['device']}, {found['dtype']}, LoRA of rank {found['lora_rank']}; torch {found['torch']}, transformers {found['transformers']}; "
        f"matrix product {found['peak_tflops']:.4g} TFLOP/s, copy {found['bandwidth_gb_per_s']:.4g} GB/s; {found['seconds']:.0f} s",
        "",
        *[f"{model['model']}: {model['skipped']}" for model in models if "skipped" in model],
        "| update of | segments | checkpointing | tokens/s | share of peak | GiB |",
        "|---|---|---|---|---|---|",
    ]
    measured = [model for model in models if "skipped" not in model]
    update_columns = (("tokens_per_s", ",.0f"), ("share_of_peak", ".1%"), ("gib", ".1f"))
    lines += [
        f"| {model['model']} | {row['rows']} x {row['tokens']:,} | {_yes(row['checkpointing'])} | {cells(row['result'], *update_columns)} |"
        for model in measured
        for row in model["updates"]
    ]
    generation_columns = (
        ("tokens_per_s", ",.0f"),
        ("decode_tokens_per_s", ",.0f"),
        ("share_of_peak", ".1%"),
        ("share_of_bandwidth", ".1%"),
    )
    lines += [
        "",
        "| generation by | rows, prompt + new | tokens/s | decoding alone | share of peak | share of bandwidth |",
        "|---|---|---|---|---|---|",
        *(
            f"| {model['model']} | {row['rows']}, {row['prompt']:,} + {row['new']} | {cells(row['result'], *generation_columns)} |"
            for model in measured
            for row in model["generation"]
        ),
        "",
        "| GiB of an update of one segment of | checkpointing |" + "".join(f" {length:,} |" for length in _lengths(measured)),
        "|---|---|" + "---|" * len(_lengths(measured)),
    ]
    for model in measured:
        for on in (False, True):
            row = [cells(item["result"], ("gib", ".1f")) for item in model["memory"] if item["checkpointing"] is on]
            lines.append(f"| {model['model']} | {_yes(on)} | {' | '.join(row)} |")
    return "\n".join(lines)


def _lengths(models: Sequence[dict[str, Any]]) -> list[int]:
    return list(dict.fromkeys(item["tokens"] for model in models for item in model["memory"]))


def _yes(on: bool) -> str:
    return "yes" if on else "no"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="1B,3B,8B", help="of 1B, 3B, 8B")
    parser.add_argument("--seconds", type=float, default=420.0, help="time budget; what would pass it is skipped")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--smoke", action="store_true", help="tiny model on the CPU")
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"--models: no shape {unknown[0]!r}; use {', '.join(SHAPES)}")
    if not options.smoke and not torch.cuda.is_available():
        parser.error("there is no GPU here; --smoke runs a tiny model on the CPU")
    if options.smoke:
        torch.set_num_threads(1)  # more only get into each other's way with matrices this small
    found = measure(SMOKE if options.smoke else Plan(tuple(SHAPES[name] for name in names), seconds=options.seconds))
    print(tables(found))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
