"""A whole run: evaluation before, training, evaluation after, report."""

from __future__ import annotations

from ..display import Display
from ..evals.scores import Scorecard
from ..runs import Run
from .evaluation import evaluate
from .loop import train
from .workshop import open_workshop


async def whole_run(run: Run, display: Display) -> None:
    """Do whatever of the run is not done yet, then print the table and the path of the report."""
    shop = open_workshop(run, display)
    before: Scorecard | None = None
    after: Scorecard | None = None
    try:
        await shop.engine.start()
        if run.config.evaluation.before:
            before = await evaluate(shop, "before")
        await train(shop)
        if run.config.evaluation.after:
            after = await evaluate(shop, "after")
    finally:
        await shop.engine.close()
    from ..analysis.run_report import summarise, write_report

    path = write_report(run)
    summarise(run, before, after)
    display.note(f"report: {path}")
