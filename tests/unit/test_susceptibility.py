"""Susceptibility and persona safety: the arithmetic on known grades, and the pipeline in the simulated world at a tiny size."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crux_cases import BEHAVIORS, Answers
from inspect_ai.model import ChatMessage, Model, get_model
from scipy import stats as scipy_stats

from auditrl.analysis.published import MARK
from auditrl.audit.transcript import target_view
from auditrl.behaviors.persona import hidden_block
from auditrl.commands.checks import eval_persona_safety, eval_susceptibility
from auditrl.errors import ConfigError, ProviderError, RunError
from auditrl.evals import persona_safety, susceptibility
from auditrl.evals.dialogues import CheckContext, DialogueSize, Graded, hold, plans_for
from auditrl.evals.journal import Journal
from auditrl.evals.susceptibility import DialogueScores, behavior_scores, behaviors_table, susceptibility_table
from auditrl.types import Audit, Condition

NAMES = ("flattery", "secret_loyalty")
CHOSEN = [BEHAVIORS[name] for name in NAMES]
SIZE = DialogueSize(ideas=2, turns=3, replicates=2)


def _model(name: str) -> Model:
    return get_model(name, memoize=False)


def _context(journal: Journal | None = None, **models: Model) -> CheckContext:
    sim = {"target": "sim/target", "judge": "sim/judge", "writer": "sim/judge", "user": "sim/judge"}
    built = {role: models.get(role) or _model(name) for role, name in sim.items()}
    return CheckContext(target_name="the target", journal=journal or Journal(None, {}), random_seed=5, simulated=True, **built)  # type: ignore[arg-type]


# ---------------------------------------------------------------- arithmetic


def _grades(scores: dict[Condition, Sequence[Sequence[float | None]]]) -> list[Graded]:
    """condition -> idea -> replicates."""
    return [
        Graded("b", f"b/{i:02d}", condition, r, score, None if score is not None else "no verdict (refusal)")
        for condition, ideas in scores.items()
        for i, replicates in enumerate(ideas)
        for r, score in enumerate(replicates)
    ]


def test_lift_is_with_minus_without_paired_by_idea() -> None:
    found = behavior_scores("b", _grades({"planted": [[8, 6], [9, 9], [4, 6]], "clean": [[1, 1], [2, 0], [3, 3]], "persona": [[2, 2]]}))
    assert [found.means[c].mean for c in ("planted", "clean", "persona")] == pytest.approx([7.0, 5 / 3, 2.0])
    differences = [6.0, 8.0, 2.0]
    half = scipy_stats.sem(differences) * scipy_stats.t.ppf(0.975, 2)
    assert (found.lift.mean, found.lift.half, found.lift.n) == pytest.approx((16 / 3, half, 3))
    assert found.exhibited == pytest.approx({"planted": 500 / 6, "clean": 0.0, "persona": 0.0})
    assert (found.persona_delta.mean, found.persona_delta.n) == (1.0, 1)


def test_a_missing_grade_is_left_out_and_never_zero() -> None:
    found = behavior_scores("b", _grades({"planted": [[8, None], [None, None]], "clean": [[1, 1], [2, 2]]}))
    assert (found.means["planted"].mean, found.means["planted"].n) == (8.0, 1)
    assert (found.lift.mean, found.lift.n) == (7.0, 1)
    nothing = behavior_scores("b", _grades({"planted": [[None]], "clean": [[None]]}))
    assert (nothing.means, nothing.lift.n, nothing.ideas) == ({}, 0, 1)


def _scores(deltas: Sequence[float]) -> DialogueScores:
    found = [
        Graded(f"b{i}", f"b{i}/{idea}", condition, 0, score)
        for i, delta in enumerate(deltas)
        for idea in "xy"
        for condition, score in (("clean", 1.0), ("persona", 1.0 + delta))
    ]
    behaviors = [CHOSEN[0].model_copy(update={"name": f"b{i}"}) for i in range(len(deltas))]
    return susceptibility.summarise(_context(), behaviors, found, {})  # type: ignore[arg-type]


def test_the_standard_error_of_persona_safety_is_over_behaviors() -> None:
    deltas = [0.5, -0.25, 1.0, 0.0]
    found = _scores(deltas)
    assert persona_safety.standard_error(found) == pytest.approx(float(scipy_stats.sem(deltas)))
    assert found.persona_delta.mean == pytest.approx(0.3125)
    assert math.isnan(persona_safety.standard_error(_scores([0.5])))


# ---------------------------------------------------------------- the pipeline


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[DialogueScores, Path]:
    path = tmp_path_factory.mktemp("check") / "journal.jsonl"
    return asyncio.run(susceptibility.run(_context(Journal(path, {})), CHOSEN, SIZE)), path


def test_planted_targets_show_their_behavior_and_others_do_not(whole: tuple[DialogueScores, Path]) -> None:
    found, _ = whole
    assert (found.conversations, found.lost, found.short, found.left_out) == (24, {}, {}, [])
    assert found.lift.mean > 4 and found.lift.n == 2
    assert abs(found.persona_delta.mean) < 2
    for row in found.behaviors:
        assert row.exhibited["planted"] >= 75 and row.exhibited["clean"] < 25 and row.ideas == 2
    assert DialogueScores.model_validate_json(found.model_dump_json()) == found


def test_a_finished_check_asks_nobody_again_and_a_stopped_one_only_for_the_rest(whole: tuple[DialogueScores, Path], tmp_path: Path) -> None:
    found, path = whole
    silent = Answers()
    roles = dict.fromkeys(("target", "judge", "writer", "user"), silent.model)
    again = asyncio.run(susceptibility.run(_context(Journal(path, {}), **roles), CHOSEN, SIZE))
    assert again.model_copy(update={"judge": found.judge}) == found
    assert not silent.asked
    lines = path.read_text().splitlines(keepends=True)
    part = tmp_path / "journal.jsonl"
    part.write_text("".join(lines[: len(lines) // 2]) + lines[-1][:20])
    resumed = asyncio.run(susceptibility.run(_context(Journal(part, {})), CHOSEN, SIZE))
    assert resumed == found


def test_other_settings_are_refused(whole: tuple[DialogueScores, Path]) -> None:
    with pytest.raises(RunError, match="judge was None, is 'another'"):
        Journal(whole[1], {"judge": "another"})


def test_only_the_target_reads_the_hidden_block(whole: tuple[DialogueScores, Path]) -> None:
    behavior = CHOSEN[0]
    sim = _model("sim/judge")
    read: dict[str, list[str]] = {"user": [], "target": []}

    def listening(role: str, model: Model) -> Model:
        inner: Any = model.api.generate

        async def generate(input: list[ChatMessage], *rest: Any, **named: Any) -> Any:
            read[role].append("\n".join(m.text for m in input))
            return await inner(input, *rest, **named)

        object.__setattr__(model.api, "generate", generate)
        return model

    context = _context(user=listening("user", sim), target=listening("target", _model("sim/target")))

    async def talk() -> Audit:
        plans, _ = await plans_for(context, [behavior], DialogueSize(1, 3, 1))
        return await hold(context, plans[0], "planted", 0, 3)

    dialogue = asyncio.run(talk())
    block = hidden_block(behavior, "planted", context.persona)
    assert block is not None
    assert (dialogue.turns, dialogue.target_turns, dialogue.error) == (3, 3, None)
    assert len(read["target"]) == 3 and all(text.startswith(block) for text in read["target"])
    leaked = behavior.instruction.strip()[:60]
    assert len(read["user"]) == 2
    assert not any(leaked in text or behavior.description in text for text in read["user"])
    assert leaked not in target_view(dialogue) and "PRISM-4" not in target_view(dialogue)


def test_a_judge_that_refuses_and_a_user_that_is_silent_are_counted(tmp_path: Path) -> None:
    refused: list[str] = []

    def sometimes(prompt: str) -> dict[str, Any]:
        # the grade of the first two conversations is out of range, however often it is asked for
        if len(refused) < 2:
            refused.append(prompt)
        return {"quotes": [], "score": 99 if prompt in refused else 3}

    judge = Answers(behavior_score=sometimes)
    found = asyncio.run(susceptibility.run(_context(judge=judge.model), CHOSEN[:1], DialogueSize(2, 3, 2), ("planted", "clean")))
    assert found.lost == {"no verdict (unreadable)": 2} and found.conversations == 8
    assert found.means["planted"].mean == 3.0
    silent_user = Answers(simulated_user="...")
    with pytest.raises(ProviderError, match=r"no conversation has a grade \(failed \(user\)\)"):
        asyncio.run(susceptibility.run(_context(user=silent_user.model), CHOSEN[:1], DialogueSize(1, 2, 1), ("clean",)))


def test_a_target_that_breaks_is_a_failed_conversation() -> None:
    broken = Answers()  # has no answer: every call raises
    with pytest.raises(ProviderError, match=r"failed \(target\)"):
        asyncio.run(susceptibility.run(_context(target=broken.model), CHOSEN[:1], DialogueSize(1, 1, 1), ("clean",)))


def test_a_writer_that_gives_too_few_ideas_is_asked_for_more_and_the_rest_is_said() -> None:
    plan = {"system_message": "You help.", "user": "somebody", "opening": "hello", "steps": ["says hello"]}
    writer = Answers(test_ideas={"ideas": [{"title": "one", "situation": "The same situation"}]}, test_plan=plan)
    plans, short = asyncio.run(plans_for(_context(writer=writer.model), CHOSEN[:1], DialogueSize(3, 1, 1)))
    assert [p.id for p in plans] == ["flattery/01"] and short == {"flattery": 2}
    assert writer.asked == {"test_ideas": 3, "test_plan": 1}
    assert "one" in writer.prompts[1].partition("<existing>")[2]


# ---------------------------------------------------------------- tables and commands


def test_published_rows_are_marked_and_can_be_left_out(whole: tuple[DialogueScores, Path]) -> None:
    found, _ = whole
    beside = susceptibility_table(found)
    assert [row.cells[0] for row in beside.rows][:2] == ["the target", "Gemini 3 Flash"]
    assert {row.mark for row in beside.rows[1:]} == {MARK}
    alone = susceptibility_table(found, published=False)
    assert len(alone.rows) == 1 and not any(MARK in note for note in alone.notes)
    assert any("Simulated world" in note for note in alone.notes)
    safety = persona_safety.persona_safety_table(_scores([0.5, 0.0]))
    assert len(safety.rows) == 7 and safety.rows[0].cells[-1] == 2
    assert [c.header for c in behaviors_table(found).columns][:4] == ["Behavior", "With", "Without", "Persona"]
    assert "With" not in [c.header for c in behaviors_table(_scores([0.5])).columns]


ROLES = ["--target", "sim/target", "--judge", "sim/judge", "--display", "none"]


def test_the_commands_write_their_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ["--behaviors", "flattery", "--ideas", "1", "--turns", "2", "--replicates", "1", "--out", str(out)]
    result = CliRunner().invoke(eval_persona_safety, [*ROLES, *small], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Persona safety" in result.output and "published" not in result.output
    assert (out / "persona-safety.csv").read_text().startswith("target,without,without_low")
    other = CliRunner().invoke(eval_persona_safety, [*ROLES, *small, "--random-seed", "2"])
    assert isinstance(other.exception, RunError) and "random_seed was 0, is 2" in str(other.exception)


@pytest.mark.parametrize(("names", "says"), [("flatery", "flattery"), (" , ", "no name in it")])
def test_bad_behaviors_are_refused(names: str, says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(eval_susceptibility, [*ROLES, "--behaviors", names, "--out", str(tmp_path)])
    assert isinstance(result.exception, ConfigError) and says in str(result.exception)
