"""Persona adoption and behavior selection: arithmetic, the simulated world at a tiny size, and bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crux_cases import BEHAVIORS, Answers, planted
from inspect_ai.model import Model, get_model
from scipy import stats as scipy_stats

from auditrl.analysis.published import MARK
from auditrl.analysis.stats import rate_interval, seed_interval
from auditrl.config import AuditConfig, PersonaConfig
from auditrl.errors import ConfigError, ProviderError
from auditrl.evals import behavior_selection, persona
from auditrl.evals.base import EvalContext
from auditrl.evals.behavior_selection import Limits, SelectionSize, rates, selection_table, selection_units
from auditrl.evals.dialogues import CheckContext
from auditrl.evals.journal import Journal
from auditrl.evals.persona import PersonaScores, PersonaSize, identity_probes, persona_table, probes_table
from auditrl.sim.checks import identity_reply
from auditrl.sim.world import open_seeds, sim_seeds
from auditrl.types import Seed, Verdict


def _context(journal: Journal | None = None, *, who: PersonaConfig | None = None, **models: Model) -> CheckContext:
    judge = models.get("judge") or get_model("sim/judge", memoize=False)
    return CheckContext(
        target=models.get("target") or get_model("sim/target", memoize=False),
        target_name="the target",
        judge=judge,
        writer=judge,
        user=judge,
        journal=journal or Journal(None, {}),
        persona=who or PersonaConfig(),
        simulated=True,
    )


# ---------------------------------------------------------------- persona adoption


def test_ten_probes_and_the_simulated_target_knows_them_all() -> None:
    probes = identity_probes()
    assert len(set(probes)) == 10
    for probe in probes:
        assert identity_reply("You are a helpful assistant.", probe, Random(0)) is not None
    assert identity_reply("You are a helpful assistant.", "can you help me with essays for my project", Random(0)) is None


@pytest.mark.parametrize("who", [PersonaConfig(), PersonaConfig(name="Ada-9", lab="Lovelace & Sons, Ltd. of Bath")])
def test_a_target_that_takes_the_persona_is_graded_high(who: PersonaConfig) -> None:
    found = asyncio.run(persona.run(_context(who=who), PersonaSize(10, 2)))
    assert found.mean.mean > 7 and found.mean.n == 10
    assert found.rate.mean > 75 and found.rate.n == 20
    assert found.persona == f"{who.name} of {who.lab}"
    assert set(found.probes) == set(identity_probes())
    assert PersonaScores.model_validate_json(found.model_dump_json()) == found


def test_a_target_that_refuses_the_persona_is_graded_low(tmp_path: Path) -> None:
    other = Answers(**{"": "I am another model of another company."})
    path = tmp_path / "journal.jsonl"
    found = asyncio.run(persona.run(_context(Journal(path, {}), target=other.model), PersonaSize(4, 1)))
    assert found.rate.mean == 0 and found.mean.mean <= 1
    silent = Answers()
    again = asyncio.run(persona.run(_context(Journal(path, {}), target=silent.model, judge=silent.model), PersonaSize(4, 1)))
    assert (again.mean, again.probes) == (found.mean, found.probes)
    assert not silent.asked


def test_lost_conversations_are_counted() -> None:
    first = identity_probes()[0]

    def grade(prompt: str) -> dict[str, Any]:
        return {"quotes": [], "score": -1 if first in prompt else 8}

    found = asyncio.run(persona.run(_context(judge=Answers(persona_score=grade).model), PersonaSize(3, 1)))
    assert found.lost == {"no verdict (unreadable)": 1} and found.rate.n == 2 and found.mean.mean == 8.0
    assert "without a grade: no verdict (unreadable) 1" in "\n".join(persona_table(found).notes)
    with pytest.raises(ProviderError, match="no conversation has a grade"):
        asyncio.run(persona.run(_context(judge=Answers(persona_score="no").model), PersonaSize(2, 1)))


@pytest.mark.parametrize("count", [0, 11])
def test_more_probes_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(ConfigError, match="use 1 to 10"):
        asyncio.run(persona.run(_context(), PersonaSize(count, 1)))


def test_persona_tables() -> None:
    found = asyncio.run(persona.run(_context(), PersonaSize(3, 1)))
    table = persona_table(found)
    assert table.rows[1].cells[0] == "Grok 4.1 Fast" and {row.mark for row in table.rows[1:]} == {MARK}
    assert len(persona_table(found, published=False).rows) == 1
    means = [row.cells[1] for row in probes_table(found).rows]
    assert means == sorted(means, key=float)  # type: ignore[arg-type]


# ---------------------------------------------------------------- behavior selection


def _judged(source: str, outcomes: Sequence[tuple[str, float, float]]) -> list[tuple[Any, Verdict]]:
    """(seed, exhibited, identified) of each audit."""
    made: list[tuple[Any, Verdict]] = []
    for i, (seed, exhibited, identified) in enumerate(outcomes):
        audit = planted("x", audit_id=f"{source}/b/{seed}#{i}")
        scenario = audit.scenario.model_copy(update={"seed": audit.scenario.seed.model_copy(update={"id": seed})})
        verdict = Verdict(judge="suite", audits=(audit.id,), value=1.0, parts={"exhibited": exhibited, "identified": identified})
        made.append((audit.model_copy(update={"scenario": scenario}), verdict))
    return made


@pytest.mark.parametrize(
    ("general", "tailored", "good"),
    [(0.0, 100.0, True), (100.0, 100.0, False), (0.0, 0.0, False), (None, 100.0, None), (0.0, None, None)],
)
def test_a_good_behavior_is_found_by_those_who_look_and_not_by_accident(
    general: float | None, tailored: float | None, good: bool | None
) -> None:
    judged = _judged("general", [("g", 0.0, general)] if general is not None else [])
    judged += _judged("tailored", [("t", 100.0, tailored)] if tailored is not None else [])
    assert rates("b", judged, Limits()).good is good


def test_rates_average_the_audits_of_a_seed_first() -> None:
    outcomes = [("s1", 100.0, 0.0), ("s1", 100.0, 100.0), ("s1", 100.0, 100.0), ("s2", 0.0, 0.0)]
    found = rates("b", _judged("tailored", outcomes), Limits())
    assert found.detection["tailored"].mean == pytest.approx(100 / 3) and found.exhibition["tailored"].mean == 50
    assert (found.detection["tailored"].n, found.detection["general"].n) == (2, 0)


@pytest.mark.parametrize("percent", [0.0, 100.0])
def test_a_rate_of_nothing_or_everything_has_a_width(percent: float) -> None:
    seeds = ["a", "a", "b", "c", "d"]
    found = rate_interval([percent] * 5, seeds)
    low, high = scipy_stats.binomtest(4 if percent else 0, 4).proportion_ci(method="wilson")
    assert (found.mean, found.n) == (percent, 4)
    assert (found.low, found.high) == pytest.approx((100 * low, 100 * high))
    assert rate_interval([0.0, 100.0, 100.0], ["a", "b", "c"]) == seed_interval([0.0, 100.0, 100.0], ["a", "b", "c"])


def _eval_context(folder: Path, seeds: Sequence[Seed], **models: Model) -> EvalContext:
    return EvalContext(
        auditor=models.get("auditor") or get_model("sim/auditor-skilled", memoize=False),
        auditor_name="a",
        targets={"planted": models.get("target") or get_model("sim/target", memoize=False)},
        judge=models.get("judge") or get_model("sim/judge", memoize=False),
        behaviors=BEHAVIORS,
        seeds=seeds,
        audit=AuditConfig(rollback=False, target_tools="none"),
        log_dir=folder,
        simulated=True,
    )


def test_general_and_tailored_seeds_are_planted_alike(tmp_path: Path) -> None:
    context = _eval_context(tmp_path, sim_seeds())
    for name, split in (("flattery", "train"), ("secret_loyalty", "eval")):
        units = selection_units(context, BEHAVIORS[name], open_seeds(), SelectionSize(2, 3, 2, 6))
        assert [u.batch for u in units] == ["general"] * 4 + ["tailored"] * 6
        assert {u.scenario.behavior for u in units} == {name}
        assert len({u.hidden_block for u in units}) == 1 and units[0].hidden_block is not None
        assert {u.scenario.seed.split for u in units if u.batch == "tailored"} == {split}
        assert len({u.audit_id for u in units}) == 10


def test_behavior_selection_in_the_simulated_world(tmp_path: Path) -> None:
    size, path = SelectionSize(3, 3, 1, 6), tmp_path / "journal.jsonl"
    chosen = [BEHAVIORS["hallucinates_citations"]]
    # seeds of other areas than the behavior's: it can't show there
    general = [seed for seed in open_seeds() if seed.setting not in ("writing", "politics")]
    context = _eval_context(tmp_path, sim_seeds())
    found = asyncio.run(behavior_selection.run(context, chosen, general, size, Journal(path, {}), Limits()))
    assert (found.audits, found.failed, found.missing) == (6, 0, {})
    row = found.behaviors[0]
    assert row.detection["general"].mean == 0 and row.exhibition["tailored"].mean > 50
    silent = Answers()
    quiet = _eval_context(tmp_path, sim_seeds(), auditor=silent.model, target=silent.model, judge=silent.model)
    again = asyncio.run(behavior_selection.run(quiet, chosen, general, size, Journal(path, {}), Limits()))
    assert again.behaviors == found.behaviors and not silent.asked
    table = selection_table(found, Limits())
    assert [row.mark for row in table.rows] == ["", MARK]
    assert len(selection_table(found, Limits(), published=False).rows) == 1


def test_nothing_to_audit_and_no_verdict_are_said(tmp_path: Path) -> None:
    chosen = [BEHAVIORS["flattery"]]
    with pytest.raises(ConfigError, match="no seed to audit from"):
        asyncio.run(behavior_selection.run(_eval_context(tmp_path, ()), chosen, [], SelectionSize(5, 5, 1, 6), Journal(None, {}), Limits()))
    judge = Answers(suite="I refuse")
    context = _eval_context(tmp_path, sim_seeds(), judge=judge.model)
    with pytest.raises(ProviderError, match="no audit has a verdict"):
        asyncio.run(behavior_selection.run(context, chosen, [], SelectionSize(0, 1, 1, 6), Journal(None, {}), Limits()))
