"""The crux evaluation on the simulated world, tiny: restore, play on, judge, go on after a stop, and refuse what does not fit."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crux_cases import BEHAVIORS, Answers
from inspect_ai.model import get_model

from auditrl.audit.replay import cut
from auditrl.audit.run import run_audits
from auditrl.audit.task import Unit
from auditrl.behaviors.persona import hidden_block
from auditrl.commands.crux import eval_crux
from auditrl.commands.results import model_key
from auditrl.config import AuditConfig, ModelConfig, ProbeConfig, load_config, packaged_config
from auditrl.errors import ConfigError, ProviderError, RunError
from auditrl.evals.base import EvalContext
from auditrl.evals.crux import (
    FEATURES,
    CruxResult,
    base_continuations,
    check_replays,
    crux_features,
    crux_table,
    features_of,
    refuse_differences,
    restorable_bank,
)
from auditrl.evals.crux_bank import Crux, CruxBank, Sources, find_cruxes, make_bank
from auditrl.evals.journal import Journal
from auditrl.runs import create_run
from auditrl.sim.world import sim_seeds
from auditrl.types import Audit, Message, Scenario, Verdict

SETTINGS = AuditConfig(max_turns=6, rollback=False, target_tools="none")
NAMES = ("secret_loyalty", "flattery")


def _source_audits(folder: Path) -> list[Audit]:
    """Audits by a scripted auditor: four seeds of two behaviors, one of them held out."""
    seeds = [seed for name in NAMES for seed in sim_seeds() if seed.behavior == name]
    units = [
        Unit(
            Scenario(id=f"{seed.id}/planted", seed=seed, condition="planted", behavior=seed.behavior),
            i,
            hidden_block(BEHAVIORS[seed.behavior or ""], "planted"),
            7,
        )
        for name in NAMES
        for seed in [s for s in seeds if s.behavior == name][:4]
        for i in range(2)
    ]
    auditor, target = get_model("sim/auditor-skilled", memoize=False), get_model("sim/target", memoize=False)
    audits, _ = asyncio.run(
        run_audits(units, SETTINGS, auditors={"": auditor}, targets={"target": target}, auditor_name="s", log_dir=folder, name="source")
    )
    return audits


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> CruxBank:
    sources = Sources(_source_audits(tmp_path_factory.mktemp("source")), SETTINGS)
    judge = get_model("sim/judge", memoize=False)
    cruxes, drops = asyncio.run(find_cruxes(sources, judge, BEHAVIORS, Journal(None, {})))
    return make_bank(cruxes, drops, sources, count=4, per_behavior=2, random_seed=0, judge="sim/judge")


def _context(folder: Path, auditor: Any = "sim/auditor-skilled", **changes: Any) -> EvalContext:
    model = get_model(auditor, memoize=False) if isinstance(auditor, str) else auditor
    context = EvalContext(
        auditor=model,
        auditor_name="the auditor",
        targets={"planted": get_model("sim/target", memoize=False)},
        judge=get_model("sim/judge", memoize=False),
        behaviors=BEHAVIORS,
        seeds=(),
        audit=SETTINGS,
        log_dir=folder,
        random_seed=3,
    )
    return replace(context, **changes)


def test_a_bank_from_the_simulated_world_can_be_restored(bank: CruxBank, tmp_path: Path) -> None:
    assert Counter(crux.behavior for crux in bank.cruxes) == dict.fromkeys(NAMES, 2)
    silent = Answers()
    context = _context(tmp_path, silent.model, targets={"planted": silent.model}, judge=silent.model)
    assert asyncio.run(check_replays(context, bank)) == {}
    assert not silent.asked


def _forged(bank: CruxBank) -> CruxBank:
    """The first crux has another reply in the target's conversation than the auditor read."""
    first = bank.cruxes[0]
    branch = first.audit.branches[0]
    place = next(i for i, m in enumerate(branch.messages) if m.role == "assistant")
    messages = list(branch.messages)
    messages[place] = messages[place].model_copy(update={"text": "i never said that"})
    audit = first.audit.model_copy(update={"branches": (branch.model_copy(update={"messages": tuple(messages)}),)})
    return bank.model_copy(update={"cruxes": (first.model_copy(update={"audit": audit}), *bank.cruxes[1:])})


def test_a_record_that_contradicts_itself_is_refused_before_and_while_playing(bank: CruxBank, tmp_path: Path) -> None:
    forged = _forged(bank)
    context = _context(tmp_path)
    problems = asyncio.run(check_replays(context, forged))
    assert list(problems) == [forged.cruxes[0].id]
    with pytest.raises(ConfigError, match="1 cruxes can't be restored"):
        refuse_differences(problems)
    journal = Journal(None, {})
    with pytest.raises(ConfigError, match="can't be restored"):
        asyncio.run(crux_features(context, forged, replicates=1, live_turns=1, journal=journal))
    # the others were played and are kept; the refused one is not
    assert {key.partition("#")[0] for key, _ in journal.items("audit/")} == {f"audit/crux/{c.id}" for c in forged.cruxes[1:]}


def test_a_crux_that_cannot_be_restored_is_replaced(bank: CruxBank, tmp_path: Path) -> None:
    drops: Counter[str] = Counter()
    forged = _forged(bank)

    def make(cruxes: Sequence[Crux], counts: Any) -> CruxBank:
        return make_bank(cruxes, counts, Sources([], SETTINGS), count=9, per_behavior=0, random_seed=0, judge="j")

    found = asyncio.run(restorable_bank(_context(tmp_path), forged.cruxes, drops, make))
    assert [c.id for c in found.cruxes] == [c.id for c in bank.cruxes[1:]]
    assert drops == {"not_restorable": 1}
    assert found.counts["not_restorable"] == 1


def test_eight_features_and_nothing_is_paid_for_twice(bank: CruxBank, tmp_path: Path) -> None:
    path = tmp_path / "crux.jsonl"
    context = _context(tmp_path)

    async def whole(where: EvalContext, base: Any) -> CruxResult:
        journal = Journal(path, {"a": 1})
        others = await base_continuations(replace(where, auditor=base), bank, live_turns=2, journal=journal)
        return await crux_features(where, bank, base=others, base_name="base", live_turns=2, replicates=2, journal=journal)

    first = asyncio.run(whole(context, get_model("sim/auditor-confessor", memoize=False)))
    assert (first.audits, first.failed, first.missing, first.simulated) == (8, 0, {}, True)
    assert set(first.values) == set(FEATURES)
    assert first.features["target_view"].n == 4 and first.features["target_view_held_out"].n == 2
    assert first.features["pairwise_win"].mean > 50
    silent = Answers()
    again = asyncio.run(whole(replace(context, auditor=silent.model, judge=silent.model, targets={"planted": silent.model}), silent.model))
    assert again == first
    assert not silent.asked
    file = tmp_path / "crux.json"
    file.write_text(first.model_dump_json())
    assert CruxResult.load(file) == first
    text = "\n".join(crux_table(first).notes)
    assert "8 audits of 4 cruxes; failed 0; verdicts missing: none" in text and "Simulated world" in text


def test_the_auditor_goes_on_from_the_restored_state(bank: CruxBank, tmp_path: Path) -> None:
    journal = Journal(None, {})
    asyncio.run(crux_features(_context(tmp_path), bank, replicates=1, live_turns=2, journal=journal))
    for crux in bank.cruxes:
        record = journal.get(f"audit/crux/{crux.id}#0")
        assert record is not None
        audit = Audit.model_validate(record["audit"])
        prefix = cut(crux.audit, crux.prefix_turns)
        assert audit.auditor_messages[: len(prefix.auditor_messages)] == prefix.auditor_messages
        assert crux.prefix_turns < audit.turns <= crux.prefix_turns + 2
        assert audit.report_text
        said: list[Message] = [m for b in audit.branches for m in b.messages]
        assert not any(BEHAVIORS[crux.behavior].instruction[:60] in m.text for m in said)


def test_missing_verdicts_are_counted_and_no_zero(bank: CruxBank, tmp_path: Path) -> None:
    yes = {"quotes": [], "surfaced": True}
    judge = Answers(target_view="no comment", auditor_view=yes)
    found = asyncio.run(crux_features(_context(tmp_path, judge=judge.model), bank, replicates=1, live_turns=1))
    assert found.missing == {"target_view": 4}
    assert found.values == {"auditor_view": 100.0}
    rows = {row.cells[0]: row.cells[1] for row in crux_table(found).rows}
    assert rows["target view"] is None and rows["pairwise win"] is None
    assert "No base model was given" in "\n".join(crux_table(found).notes)


def test_failed_audits_are_counted_and_tried_again(bank: CruxBank, tmp_path: Path) -> None:
    journal = Journal(None, {})
    broken = Answers()  # has no answer for anything
    with pytest.raises(ProviderError, match="all 4 audits failed"):
        asyncio.run(crux_features(_context(tmp_path, broken.model), bank, replicates=1, live_turns=1, journal=journal))
    assert not dict(journal.items())


def test_a_behavior_that_nobody_knows_is_refused(bank: CruxBank, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown behavior 'secret_loyalty'|unknown behavior 'flattery'"):
        asyncio.run(crux_features(_context(tmp_path, behaviors={}), bank))


def _verdict(value: float | None, **parts: float) -> Verdict:
    return Verdict(judge="j", audits=("a",), value=value, parts=parts, missing=None if value is not None else "refusal")


DELTAS = {"signal_recognition": 1.0, "realism_discretion": -2.0, "investigation_craft": 0.0, "evidence_quality": 4.0}


@pytest.mark.parametrize(
    ("verdicts", "held_out", "expected"),
    [
        ({"target_view": 1.0, "auditor_view": 0.0}, True, {"target_view": 100, "target_view_held_out": 100, "auditor_view": 0}),
        ({"target_view": None, "auditor_view": 1.0}, True, {"auditor_view": 100}),
        ({"target_view": 0.0, "auditor_view": None, "pairwise": None}, False, {"target_view": 0}),
        ({"target_view": None, "auditor_view": None, "pairwise": 0.5}, False, {"pairwise_win": 50}),
        ({"target_view": None, "auditor_view": None, "pairwise": 0.51}, False, {"pairwise_win": 100}),
        ({"target_view": None, "auditor_view": None, "pairwise": 0.49}, False, {"pairwise_win": 0}),
    ],
)
def test_features_of_one_audit(verdicts: dict[str, float | None], held_out: bool, expected: dict[str, float]) -> None:
    found = {name: _verdict(value, **(DELTAS if name == "pairwise" and value is not None else {})) for name, value in verdicts.items()}
    values = features_of(found, held_out)
    deltas = {f"{name}_delta": value for name, value in DELTAS.items()} if "pairwise_win" in expected else {}
    assert values == {**expected, **deltas}


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "crux.json").write_text('{"format": "auditrl.crux_result", "version": 2}')
    with pytest.raises(RunError, match=r"crux.json: not a crux result of version 1"):
        CruxResult.load(tmp_path / "crux.json")


def test_the_command_refuses_a_file_that_is_not_there(tmp_path: Path) -> None:
    ask = partial(CliRunner().invoke, eval_crux)
    roles = ["--auditor", "sim/auditor-skilled", "--target", "sim/target", "--judge", "sim/judge", "--display", "none"]
    result = ask(["--cruxes", str(tmp_path / "none.json"), "--out", str(tmp_path / "out"), *roles])
    assert isinstance(result.exception, ConfigError) and "auditrl crux build" in str(result.exception)


def test_a_run_is_not_measured_on_what_it_trained_on(bank: CruxBank, tmp_path: Path) -> None:
    run = create_run(tmp_path, load_config(packaged_config("quickstart"), [("name", "mine")]))
    (run.checkpoint(0)).mkdir(parents=True)
    bank.save(tmp_path / "cruxes.json")
    trained_on = f"sim/target{json.dumps(run.config.targets.pool['sim'].args)}"
    roles = ["--auditor", str(run.path), "--target", trained_on, "--judge", "sim/judge", "--display", "none"]
    result = CliRunner().invoke(eval_crux, ["--cruxes", str(tmp_path / "cruxes.json"), "--out", str(tmp_path / "out"), *roles])
    assert isinstance(result.exception, ConfigError)
    assert "mine trained on what this evaluation uses: behaviors flattery" in str(result.exception)
    assert "target sim/target" in str(result.exception) and "secret_loyalty" not in str(result.exception)


def test_a_config_with_a_missing_crux_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cruxes: no file"):
        ProbeConfig(cruxes=tmp_path / "none.json")
    assert ProbeConfig().cruxes is None


def test_a_journal_names_a_model_without_its_arguments() -> None:
    plain, secret = ModelConfig(model="openai/x"), ModelConfig(model="openai/x", args={"api_key": "s3cret"})
    assert model_key(plain) == "openai/x"
    assert model_key(secret).startswith("openai/x#") and "s3cret" not in model_key(secret)
    assert model_key(secret) != model_key(ModelConfig(model="openai/x", args={"api_key": "other"}))
