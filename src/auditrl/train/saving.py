"""What a step leaves in the run directory, and what is dropped again."""

from __future__ import annotations

from ..rewards import GroupReward
from ..runs import Run, prune_checkpoints
from ..types import Segment
from .workshop import Workshop


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
