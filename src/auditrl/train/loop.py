"""The training loop.

    for each step:  scenarios -> audits -> verdicts -> rewards -> advantages -> segments -> update -> row

Nothing is remembered between steps but the policy, the cached references and the run directory, so that a killed run goes on exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BudgetStop, RunError
from ..policy.engine import AdamConfig, LossConfig
from ..runs import truncate_rows
from ..types import Segment
from .ahead import NextStep, behind, keep_behind
from .budget import PROBE, Total, check, dearest, total_of
from .clock import Clock
from .credit import assign_credit
from .metrics import step_row
from .monitor import due, probe_due, settle, stop_if, stopping, watch, write_alarms
from .probe import probe
from .saving import checkpoint, checkpoint_due, save_step
from .workshop import REFERENCE, Workshop


async def train(shop: Workshop) -> None:
    """Train until `train.steps`, starting wherever the run directory stands. The engine is started and left open."""
    total = shop.config.train.steps
    await shop.engine.start()
    rows = await restore(shop)
    done = len(rows)
    stop_if(shop, stopping(shop.run, shop.config, rows))
    shop.display.start(f"train {shop.config.name}", total, done)
    async with NextStep(shop) as following:
        for step in range(done, total):
            clock = Clock()
            before = await check_budget(shop, rows)
            await renew_references(shop, step)

            audited = await following.take(step, clock)
            segments = assign_credit(shop, audited.judged)
            save_step(shop.run, step, audited.judged, segments)
            await following.prepare(step + 1)
            update = await update_policy(shop, segments, step)
            clock.lap("update")

            row, spent = step_row(step + 1, audited.judged, update), audited.spent
            if probe_due(shop.config, step + 1):
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
    if not shop.config.budget.capped:
        return total
    try:
        check(shop.run, shop.tariff, total, dearest(shop.tariff, rows), f"step {done + 1}")
    except BudgetStop:
        if done not in shop.run.checkpoints():
            await checkpoint(shop, done)
        raise
    return total


async def restore(shop: Workshop) -> list[dict[str, Any]]:
    """Bring engine and references to the state after the last whole row; returns the rows so far.

    Updates since the last checkpoint are replayed from the saved segments: no audit is run or paid for twice.
    """
    run = shop.run
    rows = run.metrics()
    truncate_rows(run.metrics_file, len(rows))
    write_alarms(run, rows)
    # the policy that audits an off-policy step is the one before the last update: that update is replayed then
    known = [step for step in run.checkpoints() if step + behind(shop, len(rows)) <= len(rows)]
    if not known:
        if rows:
            raise RunError(
                f"{run.path / 'checkpoints'}: no checkpoint is left for {len(rows)} steps of metrics; restore one, or start a new run"
            )
        await shop.engine.save(str(run.checkpoint(0)))
        return rows
    start = known[-1]
    if shop.design.needs_reference and not shop.references.due(start):
        await shop.engine.load(str(run.checkpoint(shop.references.snapshot_step(start))))
        await shop.engine.publish(REFERENCE)
    await shop.engine.load(str(run.checkpoint(start)))
    for step in range(start, len(rows)):
        await renew_references(shop, step)
        await keep_behind(shop, step + 1)
        await update_policy(shop, [Segment(**item) for item in run.read_step(step + 1, "segments")], step)
        if checkpoint_due(shop, step + 1):
            await checkpoint(shop, step + 1)
    if rows:
        shop.display.note(f"resumed after step {len(rows)} (checkpoint {start}, {len(rows) - start} updates replayed)")
        run.event("resumed", step=len(rows), checkpoint=start)
    return rows


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
    if row["faults"]:
        parts.append(f"server faults {sum(sum(kinds.values()) for kinds in row['faults'].values())}")
    if "judge" in row["cached_share"]:
        parts.append(f"judge cache {row['cached_share']['judge']:.0%}")
    parts.append(f"{row['time']['tokens_per_s']:.0f} tok/s")
    return "  ".join(parts)
