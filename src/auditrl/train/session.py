"""A whole run: evaluation before, training, evaluation after, report."""

from __future__ import annotations

from ..display import Display
from ..errors import AlarmStop, BudgetStop
from ..evals.scores import Scorecard
from ..runs import Run
from .budget import check_evaluation
from .evaluation import evaluate
from .loop import train
from .workshop import open_workshop


async def whole_run(run: Run, display: Display) -> None:
    """Do whatever of the run is not done yet, then print the table and the path of the report.

    Raises:
        AlarmStop: An alarm stopped the training; the report is written, the evaluation after training is left out.
        BudgetStop: A cap of the budget stopped it; the report is written, what is not paid for yet is left out.
    """
    shop = open_workshop(run, display)
    before: Scorecard | None = None
    after: Scorecard | None = None
    stopped: AlarmStop | BudgetStop | None = None
    try:
        await shop.engine.start()
        if run.config.evaluation.before:
            before = await evaluate(shop, "before")
        try:
            await train(shop)
            if run.config.evaluation.after:
                check_evaluation(run, shop.tariff)
                after = await evaluate(shop, "after")
        except (AlarmStop, BudgetStop) as error:
            stopped = error
    finally:
        await shop.engine.close()
    from ..analysis.run_report import summarise, write_report

    path, _ = write_report(run)
    summarise(run, before, after)
    display.note(f"report: {path}")
    if stopped is not None:
        raise stopped
