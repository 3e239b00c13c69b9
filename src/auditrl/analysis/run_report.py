"""From a run directory to its report: gathers what `analysis.report` shows, and prints the table after a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..costs import dollars
from ..errors import RunError
from ..evals.metering import read_text
from ..evals.scores import Scorecard
from ..files import write_whole
from ..runs import Run
from ..types import Audit, Verdict
from .alarms import alarm_story
from .reader_sources import FOLDER, LIMIT, write_run_reader
from .report import ReportData, Section, ShowcaseAudit, render_report

TABLE_WIDTH = 124
"""Narrower than this a table loses its columns; where nobody watches a terminal, lines may be long."""


def write_report(
    run: Run, extra: Sequence[Section] = (), *, audits: int = LIMIT, strategies: Path | None = None
) -> tuple[Path, Path | None]:
    """Write `report.html` and, beside it, the transcript reader; returns the paths of both pages (None for no reader).

    Args:
        extra: Further sections of the report.
        audits: Training audits that the reader holds at most; 0 leaves the reader that is there.
        strategies: Folder that `auditrl cluster` wrote, for the reader's filter; None: `RUN/strategies`, if it is there.

    Raises:
        RunError: The report can't be written. A reader that can't be is a note in the report.
    """
    path, problem = run.path / "report.html", ""
    reader = run.path / FOLDER / "index.html"
    try:
        if audits and write_run_reader(run, limit=audits, strategies=strategies) is None:
            problem = "There are no audits to read yet: steps/ is empty."
    except RunError as error:
        problem = f"The transcript reader could not be written. {error}"
    found = reader if reader.is_file() and not problem else None
    data = gather(run, extra)
    data = replace(data, reader=f"{FOLDER}/index.html" if found else "", notes=[*data.notes, *([problem] if problem else [])])
    write_whole(path, render_report(data))
    return path, found


def gather(run: Run, extra: Sequence[Section] = ()) -> ReportData:
    """Everything the report shows, from saved rows only, and further sections."""
    rows = run.metrics()
    alarms = alarm_story(run, rows)
    return ReportData(
        title=f"Training run {run.config.name}",
        run_name=run.config.name,
        simulated=run.config.simulated,
        config=run.config.model_dump(mode="json"),
        versions=run.info["versions"],
        metrics=[flat(row) for row in rows],
        before=read_card(run, "before"),
        after=read_card(run, "after"),
        showcase=[*showcase(run, len(rows)), *alarms.showcase],
        extra=[*alarms.sections, *extra],
        alarms=alarms.sentences,
        notes=notes(run, rows),
        failures=failures(rows),
        cost=cost(rows),
    )


def read_card(run: Run, label: str) -> Scorecard | None:
    """The scorecard of an evaluation, None if it was not made."""
    path = run.path / "evaluation" / label / "scorecard.json"
    return Scorecard.from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A metrics row with nested numbers under names that figures and tables use."""
    found: dict[str, Any] = {k: v for k, v in row.items() if isinstance(v, (int, float)) or v is None}
    probe = row.get("probe") or {}
    share = probe.get("false_positive_share")
    found |= {
        "composite_proxy": probe.get("composite_proxy"),
        "fp_share": share if share is None else 100 * share,
        "missing": sum((row.get("missing_verdicts") or {}).values()),
        "failed": row.get("failed_audits", 0),
        "tokens_per_s": (row.get("time") or {}).get("tokens_per_s"),
        "seconds": (row.get("time") or {}).get("total"),
    }
    found |= {key: value for key, value in (row.get("update") or {}).items() if isinstance(value, (int, float))}
    return found


def showcase(run: Run, step: int) -> list[ShowcaseAudit]:
    """Best, median and worst audit of the last step, planted and clean apart where there are both."""
    if step < 1:
        return []
    try:
        records = run.read_step(step, "audits")
    except RunError:
        return []
    shown: list[ShowcaseAudit] = []
    for planted in (True, False):
        rewarded = sorted(
            (r for r in records if r["reward"] is not None and (r["audit"]["scenario"]["condition"] == "planted") == planted),
            key=lambda r: (r["reward"], r["audit"]["id"]),
        )
        kind = "planted" if planted else "clean"
        picks = {"best": len(rewarded) - 1, "median": len(rewarded) // 2, "worst": 0} if len(rewarded) >= 3 else {}
        shown += [_shown(f"{label}, {kind} target", rewarded[at]) for label, at in picks.items()]
    return shown


def _shown(label: str, record: Mapping[str, Any]) -> ShowcaseAudit:
    return ShowcaseAudit(
        label=label,
        audit=Audit.model_validate(record["audit"]),
        reward=record["reward"],
        verdicts=[Verdict.model_validate(v) for v in record["verdicts"]],
    )


def failures(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Missing verdicts and failed audits of all steps by cause, and the servers' faults, mended ones included."""
    total: Counter[str] = Counter()
    for row in rows:
        for cause, count in (row.get("missing_verdicts") or {}).items():
            total[f"no verdict: {cause}"] += count
        for cause, count in (row.get("failures") or {}).items():
            total[f"failed audit: {cause}"] += count
        for role, kinds in (row.get("faults") or {}).items():
            for kind, count in kinds.items():
                total[f"server fault, {role}: {kind}"] += count
    return dict(total)


def cost(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tokens by role, dollars where prices are known, and time of all training steps; references and probe apart."""
    total: dict[str, Counter[str]] = {}
    for row in rows:
        parts = {"": row.get("usage") or {}, **{f"{part}, ": roles for part, roles in (row.get("spent") or {}).items()}}
        for part, roles in parts.items():
            for role, counts in roles.items():
                total.setdefault(f"{part}{role}", Counter()).update(counts)
    shown: dict[str, Any] = {
        f"{role} tokens": f"{read_text(c)}, {c['output']:,} written, {c['calls']:,} calls" for role, c in sorted(total.items())
    }
    shown |= _price(rows)
    seconds = sum((row.get("time") or {}).get("total", 0.0) for row in rows)
    return {**shown, "training time": f"{seconds / 60:.1f} min"} if rows else {}


def _price(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Dollars and paid tokens so far, the evaluation before training included; roles without a price are named."""
    last = next((row["cost"] for row in reversed(rows) if row.get("cost")), None)
    if last is None:
        return {}
    unpriced = sorted({role for row in rows for role in (row.get("cost") or {}).get("unpriced", ())})
    without = f" without {', '.join(unpriced)}, whose price is not known" if unpriced else ""
    return {"price so far": f"{dollars(last['total_usd'])}{without}", "paid tokens so far": f"{last['total_tokens']:,}"}


def notes(run: Run, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader should know about this run."""
    config = run.config
    found = [f"{len(rows)} of {config.train.steps} steps; {config.train.groups} scenarios x {config.train.group_size} audits a step."]
    biases = [row["position_bias"] for row in rows if row.get("position_bias") is not None]
    if biases:
        mean = sum(biases) / len(biases)
        found.append(
            f"Position bias of the judge: {100 * mean:+.1f} points of 100 in favour of the audit shown first (mean of {len(biases)} steps)."
        )
    return found


def summarise(run: Run, before: Scorecard | None, after: Scorecard | None) -> None:
    """Print the scores before and after, with intervals, and whether the differences stand."""
    from rich.console import Console

    from .tables import comparison_table, score_table, to_rich

    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    if before is not None and after is not None:
        console.print(to_rich(comparison_table(before, after)))
    elif cards := [card for card in (before, after) if card is not None]:
        console.print(to_rich(score_table(cards)))
