"""One row a step: what happened, by part. Times stand apart under `time`, so that the rest can be compared between runs to the last digit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..rewards import GroupReward
from ..types import FIRM, Audit, Verdict


def mean(values: Iterable[float]) -> float | None:
    """Mean, None of nothing."""
    found = list(values)
    return float(np.mean(found)) if found else None


def is_firm(audit: Audit) -> bool:
    """Whether the report claims a finding with confidence."""
    return audit.report is not None and audit.report.finding and audit.report.confidence >= FIRM


def step_row(step: int, judged: Sequence[GroupReward], update: Mapping[str, float]) -> dict[str, Any]:
    """The row of one step (1-based `step`), without times.

    `position_bias`: mean score of whichever audit stood in slot A, minus 1/2; 0 is unbiased. With a reference it also holds how
    much better the policy is than its reference only if slots were not drawn evenly, so it is averaged over both slot choices.
    """
    audits = [audit for group in judged for audit in group.group.audits]
    finished = [audit for audit in audits if not audit.failed]
    verdicts = [verdict for group in judged for verdict in group.verdicts]
    planted = [r for g in judged if g.group.scenario.planted for r in g.rewards.values()]
    clean = [r for g in judged if not g.group.scenario.planted for r in g.rewards.values()]
    clean_audits = [a for a in finished if not a.scenario.planted]
    return {
        "step": step,
        "reward": mean([*planted, *clean]),
        "reward_planted": mean(planted),
        "reward_clean": mean(clean),
        "reward_std_in_group": mean(float(np.std(list(g.rewards.values()))) for g in judged if g.rewards),
        "firm_on_clean": mean(float(is_firm(a)) for a in clean_audits),
        "firm_on_planted": mean(float(is_firm(a)) for a in finished if a.scenario.planted),
        "unreadable_reports": sum(a.report is None for a in finished),
        "turns": mean(float(a.turns) for a in finished),
        "target_turns": mean(float(a.target_turns) for a in finished),
        "failed_audits": len(audits) - len(finished),
        "failures": dict(Counter((a.error or "").split(":")[0] for a in audits if a.failed)),
        "verdicts": len(verdicts),
        "missing_verdicts": dict(Counter((v.missing or "").split(":")[0] for v in verdicts if v.value is None)),
        "asked_again": sum(v.attempts - 1 for v in verdicts),
        "unverified_quotes": sum(v.unverified_quotes for v in verdicts),
        "position_bias": position_bias(verdicts),
        "parts": reward_parts(verdicts),
        "update": {k: v for k, v in update.items() if k not in ("seconds", "tokens_per_s")},
        "usage": usage(audits, verdicts),
    }


def reward_parts(verdicts: Iterable[Verdict]) -> dict[str, dict[str, float]]:
    """Mean of every part of the verdicts by judge: sub-score differences, Petri's grades, the terms of a formula."""
    found: dict[str, dict[str, list[float]]] = {}
    for verdict in verdicts:
        for name, value in verdict.parts.items():
            found.setdefault(verdict.judge, {}).setdefault(name, []).append(value)
    return {judge: {name: round(float(np.mean(values)), 4) for name, values in parts.items()} for judge, parts in found.items()}


def position_bias(verdicts: Sequence[Verdict]) -> float | None:
    """How much a judge favours slot A: (mean score of A when it holds the first audit + mean score of A when it holds the second)/2 - 1/2.

    Averaging the two arrangements takes out how much better the first audits are. None until both arrangements have been seen.
    """
    by_order = {order: mean(v.parts["slot_a"] for v in verdicts if v.order == order and "slot_a" in v.parts) for order in ("ab", "ba")}
    if by_order["ab"] is None or by_order["ba"] is None:
        return None
    return (by_order["ab"] + by_order["ba"]) / 2 - 0.5


def usage(audits: Iterable[Audit], verdicts: Iterable[Verdict]) -> dict[str, dict[str, int]]:
    """Tokens and calls by role."""
    total: dict[str, dict[str, int]] = {}

    def add(role: str, counts: Mapping[str, int]) -> None:
        row = total.setdefault(role, {})
        for key, value in counts.items():
            row[key] = row.get(key, 0) + value

    for audit in audits:
        for role, counts in audit.usage.items():
            add(role, counts)
    for verdict in verdicts:
        add("judge", {**verdict.usage, "calls": verdict.attempts})
    return total
