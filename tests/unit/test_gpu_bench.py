"""The benchmark for a machine with an accelerator: on a CPU, with a tiny model."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    sys.path.insert(0, BENCHMARKS)
    torch.set_num_threads(1)
    try:
        import gpu  # type: ignore[import-not-found]

        yield gpu
    finally:
        sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="module")
def subject(gpu: Any) -> Any:
    bench = gpu.Bench(gpu.SMOKE)
    bench.measure_limits()
    return gpu.Subject.build(bench, gpu.TINY)


def test_smoke_prints_tables_and_writes_json(gpu: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    gpu.main(["--smoke", "--out", str(tmp_path / "gpu.json")])
    assert time.process_time() - began < 20
    found = json.loads((tmp_path / "gpu.json").read_text())
    (model,) = found["models"]
    assert found["peak_tflops"] > 0 and found["bandwidth_gb_per_s"] > 0
    assert [row["checkpointing"] for row in model["updates"]] == [False, True]
    assert {row["tokens"] for row in model["memory"]} == {32, 64}
    for row in (*model["updates"], *model["generation"], *model["memory"]):
        assert all(value > 0 for value in row["result"].values())
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len([line for line in lines if "| tiny |" in line]) == 2 + 1 + 2
    for line in lines:
        assert line.count("|") == 7 or line.count("|") == 5
    assert re.search(r"\| tiny \| 2 x 64 \| yes \| [\d,]+ \| \d+\.\d% \| \d+\.\d \|", printed)


@pytest.mark.parametrize(("name", "billions"), [("1B", 1.236), ("3B", 3.213), ("8B", 8.030)])
def test_shapes_have_the_size_of_their_name(gpu: Any, name: str, billions: float) -> None:
    shape = gpu.SHAPES[name]
    with torch.device("meta"):
        parameters = LlamaForCausalLM(shape.config()).num_parameters()
    assert parameters / 1e9 == pytest.approx(billions, rel=1e-3)
    counted = shape.linear + shape.output * (1 if shape.tied else 2)
    assert counted == pytest.approx(parameters, rel=1e-3)


def test_operations_are_those_that_torch_counts(gpu: Any) -> None:
    """Torch counts no fused attention on a CPU, and all of the plain kind, of which a causal model needs half."""
    subject = gpu.Subject.build(gpu.Bench(gpu.SMOKE), gpu.TINY)
    counts: dict[str, int] = {}
    for attention in ("sdpa", "eager"):
        subject.network.causal.set_attn_implementation(attention)
        with FlopCounterMode(display=False) as counter:
            subject.step(4, 512)
        counts[attention] = counter.get_total_flops()
    attention = 3 * 4 * subject.shape.attention(512, 256)
    expected = subject.shape.update_operations(4, 512, subject.adapter)
    assert expected - attention == pytest.approx(counts["sdpa"], rel=0.1)
    assert 2 * attention == pytest.approx(counts["eager"] - counts["sdpa"], rel=0.02)


def test_what_passes_the_time_is_skipped_and_said(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = gpu.measure(replace(gpu.SMOKE, seconds=0.0))
    assert found["models"] == [{"model": "tiny", "skipped": "skipped: time"}]
    assert "tiny: skipped: time" in gpu.tables(found)


def test_what_does_not_fit_is_said_and_the_rest_goes_on(subject: Any, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = gpu.Subject.step

    def small(self: Any, rows: int, length: int) -> None:
        if length > 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        step(self, rows, length)

    monkeypatch.setattr(gpu.Subject, "step", small)
    assert subject.measure_memory(64, checkpointing=False) == "does not fit"
    assert subject.measure_memory(32, checkpointing=True)["gib"] > 0
    assert gpu.cells("does not fit", ("gib", ".1f"), ("seconds", ".1f")) == "does not fit | "


def test_without_a_gpu_it_says_so(gpu: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, message in (([], "there is no GPU here; --smoke"), (["--models", "7B"], "no shape '7B'; use 1B, 3B, 8B")):
        with pytest.raises(SystemExit):
            gpu.main(arguments)
        assert message in capsys.readouterr().err
