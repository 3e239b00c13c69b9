"""The training loop.

    for each step:  scenarios -> audits -> verdicts -> rewards -> advantages -> segments -> update -> row

Nothing is remembered between steps but the policy, the cached references and the run directory, so that a killed run goes on exactly.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BudgetStop, RunError
from ..policy.engine import AdamConfig, LossConfig
from ..rewards import GroupReward
from ..runs import Run, prune_checkpoints, truncate_rows
from ..types import Segment
from .batch import draw_batch
from .budget import PROBE, REFERENCES, TRAINING, Spent, Total, check, dearest, kept, total_of
from .credit import assign_credit, judge
from .metrics import step_row
from .monitor import due, look_at_start, settle, stop_if, stopping, watch, write_alarms
from .probe import probe
from .rollout import roll_out
from .workshop import REFERENCE, Workshop


async def train(shop: Workshop) -> None:
    """Train until `train.steps`, starting wherever the run directory stands. The engine is started and left open."""
    total = shop.config.train.steps
    await shop.engine.start()
    done = await restore(shop)
    rows = shop.run.metrics()
    stop_if(shop, stopping(shop.run, shop.config, rows))
    shop.display.start(f"train {shop.config.name}", total, done)
    for step in range(done, total):
        clock, spent = Clock(), Spent(shop.tariff)
        before = await check_budget(shop, rows)
        if step == 0 and shop.config.alarm_every:
            with kept(shop.run, spent):
                await look_at_start(shop)
            clock.lap("look_at_start")
        await renew_references(shop, step)

        scenarios = draw_batch(shop.config, shop.seeds, step)
        with spent.part(TRAINING):
            groups = await roll_out(shop, scenarios, step)
            clock.lap("audits")
            judged = await judge(shop, groups, step)
        spent.add_audits(REFERENCES, shop.references.made_at(step))
        segments = assign_credit(shop, judged)
        clock.lap("judging")

        save_step(shop.run, step, judged, segments)
        update = await update_policy(shop, segments, step)
        clock.lap("update")

        row = step_row(step + 1, judged, update)
        if due(shop.config.probe.every, step + 1) or due(shop.config.alarm_every, step + 1):
            with spent.part(PROBE):
                found = await probe(shop, step + 1, cruxes=due(shop.config.probe.every, step + 1))
                row["probe"] = found.values
                await watch(shop, rows, row, found)
            clock.lap("probe")
        row |= spent.row(before)
        row["time"] = clock.times(row)
        shop.run.append_metrics(row)
        rows.append(row)
        shop.display.advance(describe(row))
        halt = settle(shop, rows)
        if checkpoint_due(shop, step + 1) or halt:
            await checkpoint(shop, step + 1)
        stop_if(shop, halt)
    shop.display.finish()


async def check_budget(shop: Workshop, rows: Sequence[Mapping[str, Any]]) -> Total:
    """What is spent after the rows so far; a cap that the next step would pass stops the run here, behind a checkpoint."""
    done = len(rows)
    total = total_of(shop.run, shop.tariff, rows)
    try:
        check(shop.run, shop.tariff, total, dearest(shop.tariff, rows), f"step {done + 1}")
    except BudgetStop:
        if done not in shop.run.checkpoints():
            await checkpoint(shop, done)
        raise
    return total


async def restore(shop: Workshop) -> int:
    """Bring engine and references to the state after the last whole row; returns how many steps are done.

    Updates since the last checkpoint are replayed from the saved segments: no audit is run or paid for twice.
    """
    run = shop.run
    rows = run.metrics()
    truncate_rows(run.metrics_file, len(rows))
    write_alarms(run, rows)
    known = [step for step in run.checkpoints() if step <= len(rows)]
    if not known:
        if rows:
            raise RunError(
                f"{run.path / 'checkpoints'}: no checkpoint is left for {len(rows)} steps of metrics; restore one, or start a new run"
            )
        await shop.engine.save(str(run.checkpoint(0)))
        return 0
    start = known[-1]
    if shop.design.needs_reference and not shop.references.due(start):
        await shop.engine.load(str(run.checkpoint(shop.references.snapshot_step(start))))
        await shop.engine.publish(REFERENCE)
    await shop.engine.load(str(run.checkpoint(start)))
    for step in range(start, len(rows)):
        await renew_references(shop, step)
        await update_policy(shop, [Segment(**item) for item in run.read_step(step + 1, "segments")], step)
        if checkpoint_due(shop, step + 1):
            await checkpoint(shop, step + 1)
    if rows:
        shop.display.note(f"resumed after step {len(rows)} (checkpoint {start}, {len(rows) - start} updates replayed)")
        run.event("resumed", step=len(rows), checkpoint=start)
    return len(rows)


async def renew_references(shop: Workshop, step: int) -> None:
    """At a renewal the current policy becomes the one that makes references."""
    if shop.design.needs_reference and shop.references.due(step):
        shop.engine.release(REFERENCE)
        await shop.engine.publish(REFERENCE)


async def update_policy(shop: Workshop, segments: list[Segment], step: int) -> dict[str, float]:
    """One optimiser update; a step in which nothing has an advantage changes nothing."""
    settings = shop.config.train
    if not segments:
        return {"skipped": 1.0}
    loss = LossConfig(settings.loss.kind, settings.loss.clip_low, settings.loss.clip_high, settings.loss.ratio_mask, settings.loss.kl_coef)
    warmup = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    adam = AdamConfig(lr=settings.lr * warmup, weight_decay=settings.weight_decay, grad_clip=settings.grad_clip)
    return (await shop.engine.train_step(segments, loss=loss, adam=adam)).values


def save_step(run: Run, step: int, judged: list[GroupReward], segments: list[Segment]) -> None:
    """Audits with their verdicts and rewards, and the segments that the update is about to use."""
    audits = [
        {
            "audit": audit.model_dump(mode="json"),
            "reward": group.rewards.get(audit.id),
            "verdicts": [v.model_dump(mode="json") for v in group.verdicts if audit.id in v.audits],
        }
        for group in judged
        for audit in group.group.audits
    ]
    run.write_step(step + 1, "audits", audits)
    fields = ("tokens", "mask", "logprobs", "advantage", "audit_id", "group")
    run.write_step(step + 1, "segments", [{name: getattr(segment, name) for name in fields} for segment in segments])


def checkpoint_due(shop: Workshop, done: int) -> bool:
    """Every N steps, at the end, and where a reference snapshot is taken (a resumed run needs its weights)."""
    settings = shop.config.train
    renewal = shop.design.needs_reference and shop.references.due(done)
    return done % settings.checkpoint_every == 0 or done == settings.steps or renewal


async def checkpoint(shop: Workshop, done: int) -> None:
    """Save policy and optimiser; drop what no resume can need."""
    run = shop.run
    await shop.engine.save(str(run.checkpoint(done)))
    run.event("checkpoint", step=done)
    prune_checkpoints(run, shop.config.train.keep_checkpoints, also={0, shop.references.snapshot_step(done)})
    oldest = run.checkpoints()[-shop.config.train.keep_checkpoints :][0]
    for step in range(max(1, oldest - 200), oldest + 1):
        run.step_file(step, "segments.json.gz").unlink(missing_ok=True)


class Clock:
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Time since the last lap goes to `name`."""
        moment = time.perf_counter()
        self._laps[name] = moment - self._last
        self._last = moment

    def times(self, row: dict[str, Any]) -> dict[str, float]:
        """Laps, their total, and auditor tokens a second over audits and update."""
        total = sum(self._laps.values())
        tokens = row["usage"].get("auditor", {}).get("output", 0)
        return {
            **{k: round(v, 4) for k, v in self._laps.items()},
            "total": round(total, 4),
            "tokens_per_s": round(tokens / total, 1) if total else 0.0,
        }


def describe(row: dict[str, Any]) -> str:
    """The live line."""
    parts = [f"reward {row['reward']:.3f}" if row["reward"] is not None else "reward -"]
    found = row.get("probe") or {}
    if found.get("composite_proxy") is not None:
        parts.append(f"proxy {found['composite_proxy']:.0f}")
    if found.get("false_positive_share") is not None:
        parts.append(f"false positives {100 * found['false_positive_share']:.0f}%")
    parts += [f"alarm {alarm['alarm']}" for alarm in row.get("alarms") or []]
    if row["failed_audits"]:
        parts.append(f"failed {row['failed_audits']}")
    if row["missing_verdicts"]:
        parts.append(f"no verdict {sum(row['missing_verdicts'].values())}")
    parts.append(f"{row['time']['tokens_per_s']:.0f} tok/s")
    return "  ".join(parts)
