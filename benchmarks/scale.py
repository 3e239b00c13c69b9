"""What grows: concurrent audits with models that answer at once, and run directories of many steps.

    OMP_NUM_THREADS=1 python benchmarks/scale.py audits --sizes 64,512,4096
    OMP_NUM_THREADS=1 python benchmarks/scale.py runs --sizes 100,1000

`audits`: the simulated world's scripted auditors (all eight, in rotation) and target, all audits of a size alive at the same time, in one
Inspect log; a process of its own for each size. Processor time and peak memory an audit; rounds of 64 audits before and after are the measure.
`runs`: made-up run directories of so many steps, 64 audits and 8 references each, from real simulated audits; the time to open one for a
resume, to show it, to write its report and reader, to collect its garbage, and of one more step's bookkeeping.

Processor time, because other work on the machine disturbs the wall clock.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import gzip
import hashlib
import json
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from inspect_ai.model import GenerateConfig, Model, get_model

from auditrl.analysis.run_report import write_report
from auditrl.audit.run import run_audits
from auditrl.audit.task import Unit
from auditrl.behaviors.loader import load_bank
from auditrl.behaviors.persona import hidden_block
from auditrl.commands.runs import describe
from auditrl.config import RunConfig, load_config, packaged_config
from auditrl.runs import Run, create_run, open_run, truncate_rows
from auditrl.sim.auditors import ARCHETYPES
from auditrl.sim.world import sim_seeds
from auditrl.train.batch import draw_batch
from auditrl.train.budget import Tariff, check, dearest, total_of
from auditrl.train.gc import collect
from auditrl.train.metrics import step_row
from auditrl.train.monitor import stopping, write_alarms
from auditrl.train.references import FILE, References
from auditrl.types import Audit, Scenario, Verdict

MIB = 1 if sys.platform == "darwin" else 1024
"""`ru_maxrss` counts bytes on a Mac, KiB elsewhere."""


SMALL, ROUNDS = 64, 4
"""The size that the others are measured against, and how often it runs before and after each of them."""


def peak_mib() -> float:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MIB / 2**20


# ---------------------------------------------------------------- concurrent audits


class Together:
    """Holds audits until so many are alive: models that answer at once never wait, and the first would end before the last begins."""

    def __init__(self, count: int) -> None:
        self._missing = count
        self._full = asyncio.Event()

    @asynccontextmanager
    async def joined(self, _: str) -> AsyncGenerator[None]:
        """Entered around one audit."""
        self._missing -= 1
        if not self._missing:
            self._full.set()
        await self._full.wait()
        yield


async def audits(count: int, folder: Path, name: str) -> list[Audit]:
    """That many audits at the same time."""
    bank = load_bank()
    seeds = [seed for seed in sim_seeds() if seed.split == "train"]
    units: list[Unit] = []
    for i in range(count):
        seed = seeds[i * 7 % len(seeds)]
        where = Scenario(id=seed.id, seed=seed, condition="planted", behavior=seed.behavior, target="sim")
        block = hidden_block(bank.behaviors[seed.behavior or ""], "planted")
        units.append(Unit(where, i, block, random_seed=1, batch=name, auditor=ARCHETYPES[i % len(ARCHETYPES)]))

    def instant(model: str) -> Model:
        # Inspect lets few calls of a provider run at a time unless it is told otherwise
        return get_model(f"sim/{model}", config=GenerateConfig(max_connections=count), memoize=False)

    done, _ = await run_audits(
        units,
        quickstart().audit,
        auditors={archetype: instant(f"auditor-{archetype}") for archetype in ARCHETYPES},
        targets={"sim": instant("target")},
        auditor_name="scale",
        log_dir=folder,
        name=name,
        joined=Together(count).joined,
    )
    if failed := [audit for audit in done if audit.failed]:
        raise SystemExit(f"{len(failed)} of {count} audits failed: {failed[0].error}")
    return done


def quickstart(*overrides: tuple[str, str]) -> RunConfig:
    """The quickstart recipe, changed."""
    return load_config(packaged_config("quickstart"), overrides)


def measure_audits(count: int, profile: bool) -> dict[str, float]:
    """Seconds of processor an audit, the same of small rounds before and after it, peak memory, turns an audit, size of the log."""
    with tempfile.TemporaryDirectory() as place:

        def seconds(size: int, name: str) -> float:
            gc.collect()
            began = time.process_time()
            done.extend(asyncio.run(audits(size, Path(place), name)))
            return (time.process_time() - began) / size

        done: list[Audit] = []
        seconds(8, "warm")
        before = peak_mib()
        small = [seconds(SMALL, f"before-{number}") for number in range(ROUNDS)]
        done.clear()
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        cpu = seconds(count, "measured")
        profiler.disable()
        turns, peak = sum(audit.turns for audit in done) / count, peak_mib()
        done.clear()
        small += [seconds(SMALL, f"after-{number}") for number in range(ROUNDS)]
        size = sum(path.stat().st_size for path in Path(place).glob("*measured*.eval"))
    if profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(45)
    return {
        "audits": count,
        "turns": turns,
        "cpu_s": cpu,
        "small_cpu_s": statistics.median(small),
        "peak_mib": peak,
        "mib": (peak - before) / count,
        "log_kib": size / count / 1024,
    }


def audits_table(found: list[dict[str, float]]) -> str:
    """Markdown; the ratio is to rounds of 64 in the same process, because what else runs on the machine changes from minute to minute."""
    lines = [
        f"| audits at a time | turns an audit | processor ms an audit | to rounds of {SMALL} around it | peak memory, MiB | MiB an audit | log, KiB an audit |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found:
        lines.append(
            f"| {row['audits']:,.0f} | {row['turns']:.2f} | {1000 * row['cpu_s']:.0f} | {row['cpu_s'] / row['small_cpu_s']:.2f} | "
            f"{row['peak_mib']:,.0f} | {row['mib']:.2f} | {row['log_kib']:.1f} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- run directories


def make_run(folder: Path, steps: int, samples: list[Audit]) -> Run:
    """A run of so many steps as a kill would leave it, made of the same few audits again and again."""
    run = create_run(folder, quickstart(("train.steps", str(steps + 25)), ("name", f"steps-{steps}")))
    template = step_row(1, [], {"loss": 0.1, "grad_norm": 1.0})
    wins = [Verdict(judge="pairwise", audits=(audit.id, "r"), value=0.5, reason="Both asked much the same. " * 10) for audit in samples]
    records = [
        {"audit": audit.model_dump(mode="json"), "reward": 0.01 * i, "verdicts": [verdict.model_dump(mode="json")]}
        for i, (audit, verdict) in enumerate(zip(samples, wins, strict=True))
    ]
    compressed = gzip.compress(json.dumps(records).encode(), 5, mtime=0)
    references: list[str] = []
    rows: list[str] = []
    for step in range(steps):
        write(run.step_file(step + 1, "audits.json.gz"), compressed)
        write(run.step_file(step + 1, "segments.json.gz"), compressed[: len(compressed) // 4])
        snapshot = step // 25 * 25
        for i, audit in enumerate(samples[:8]):
            row = {"snapshot": snapshot, "step": step, "scenario": f"{step}-{i}", "audit": records[i]["audit"]}
            references.append(json.dumps({**row, "audit": {**audit.model_dump(mode="json"), "id": f"reference-{step:04d}/{i}#0"}}))
        usage = {role: {"input": 30_000, "output": 3_000, "calls": 400} for role in ("auditor", "target", "judge")}
        probe = {"quality": 50.0, "fp_calibration": 90.0, "composite_proxy": 70.0, "false_positive_share": 0.1, "audits": 64.0}
        numbers = {
            "step": step + 1,
            "reward": 0.5 + step / 4 / steps,
            "position_bias": 0.01,
            "usage": usage,
            "spent": {"references": usage},
        }
        cost = {"usd": {"training": 0.0}, "total_usd": 0.0, "total_tokens": 66_000 * step}
        rows.append(
            json.dumps({**template, **numbers, "cost": cost, "time": {"total": 5.0}, **({"probe": probe} if step % 5 == 4 else {})})
        )
    write(run.path / "references.jsonl", "\n".join([*references, ""]).encode())
    write(run.metrics_file, "\n".join([*rows, ""]).encode())
    last = steps // 10 * 10
    for step in {0, last // 25 * 25, last - 10, last}:
        write(run.checkpoint(step) / "model.safetensors", b"weights" * 10_000)
        digest = hashlib.sha256(b"weights" * 10_000).hexdigest()
        write(run.checkpoint(step) / "engine.json", json.dumps({"files": {"model.safetensors": digest}}).encode())
    return run


def write(path: Path, content: bytes) -> None:
    """Plainly: a benchmark's files need not survive a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def resume_reading(path: Path) -> None:
    """What a resume reads and rewrites before the first update is replayed."""
    run = open_run(path)
    rows = run.metrics()
    truncate_rows(run.metrics_file, len(rows))
    write_alarms(run, rows)
    run.checkpoints()
    References.load(run.path / FILE, run.config.reward.renewal_steps)


def bookkeeping(path: Path) -> Callable[[], None]:
    """What the loop does beside audits and update at the step after the last one, rows in memory."""
    run = open_run(path)
    tariff, rows, seeds = Tariff.load(run.config), run.metrics(), sim_seeds()
    references = References.load(run.path / FILE, run.config.reward.renewal_steps)

    def step() -> None:
        total = total_of(run, tariff, rows)
        check(run, tariff, total, dearest(tariff, rows), "the next step")
        batch = draw_batch(run.config, seeds, len(rows))
        references.missing(batch, len(rows))
        references.made_at(len(rows))
        stopping(run, run.config, rows)

    return step


GC, REPORT = "`auditrl gc`", "`auditrl report`, 4,000 audits in the reader"
ONCE = (GC, REPORT)
"""Too long to repeat, or different the second time; of the others the median of five counts."""


def measure_run(path: Path) -> dict[str, float]:
    """Processor seconds of each kind of work on a run directory, and the peak memory of this process."""
    work: dict[str, Callable[[], object]] = {
        "bookkeeping of one more step": bookkeeping(path),
        "reading for a resume": lambda: resume_reading(path),
        "`auditrl runs show`": lambda: describe(open_run(path)),
        REPORT: lambda: write_report(open_run(path)),
        GC: lambda: collect(open_run(path)),
        "reading for a resume after it": lambda: resume_reading(path),
    }
    found: dict[str, float] = {}
    for name, task in work.items():
        times: list[float] = []
        for _ in range(1 if name in ONCE else 5):
            gc.collect()
            began = time.process_time()
            task()
            times.append(time.process_time() - began)
        found[name] = statistics.median(times)
    return {**found, "peak_mib": peak_mib()}


def runs_table(found: dict[int, dict[str, float]]) -> str:
    """Markdown: seconds by kind of work and size, and the ratio of the largest size to the smallest."""
    sizes = sorted(found)
    lines = [f"| | {' | '.join(f'{size:,} steps' for size in sizes)} | ratio |", "|---|" + "---:|" * (len(sizes) + 1)]
    for name in next(iter(found.values())):
        values = [found[size][name] for size in sizes]
        shown, title = ([f"{v:.0f} MiB" for v in values], "peak memory") if name == "peak_mib" else ([f"{v:.4f} s" for v in values], name)
        lines.append(f"| {title} | {' | '.join(shown)} | {values[-1] / values[0]:.1f} |")
    return "\n".join(lines)


# ---------------------------------------------------------------- command line


def alone(*args: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *args], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    print(f"{' '.join(args)}: {found}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["audits", "runs", "one-audits", "one-run"])
    parser.add_argument("--sizes", default="")
    parser.add_argument("--profile", action="store_true", help="Of the audits: where the time goes, on standard error.")
    parser.add_argument("--run", type=Path)
    args = parser.parse_args()
    sizes = [int(size) for size in (args.sizes or {"runs": "100,1000"}.get(args.part, "64,512,4096")).split(",")]
    match args.part:
        case "one-audits":
            print(json.dumps(measure_audits(sizes[0], args.profile)))
        case "one-run":
            print(json.dumps(measure_run(args.run)))
        case "audits":
            extra = ["--profile"] if args.profile else []
            print(audits_table([alone("one-audits", "--sizes", str(size), *extra) for size in sizes]))
        case _:
            with tempfile.TemporaryDirectory() as place:
                samples = asyncio.run(audits(64, Path(place) / "logs", "sample"))
                found: dict[int, dict[str, float]] = {}
                for size in sizes:
                    path = make_run(Path(place), size, samples).path
                    found[size] = alone("one-run", "--run", str(path))
            print(runs_table(found))


if __name__ == "__main__":
    main()
