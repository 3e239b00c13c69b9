"""Sweeps: planning, running with stand-in processes, and what is made of the results."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click.testing
import pytest

from auditrl.analysis import figures
from auditrl.analysis.stats import Interval
from auditrl.analysis.sweep_report import as_json, check_published, gather, published_row, write_results
from auditrl.analysis.sweep_results import by_seed, collect, examine, over_seeds, value
from auditrl.cli import cli
from auditrl.display import NoDisplay
from auditrl.errors import AuditrlError, ConfigError, RunError
from auditrl.evals.scores import SUITES, ScoreRow, scorecard, suite_result
from auditrl.runs import Run, create_run, open_run
from auditrl.train import sweep
from auditrl.train.sweep import Outcome, run_sweep, standing
from auditrl.train.sweep_file import Cell, Expect, Plan, find_sweep, make_plan, packaged_sweeps, slug

BASIC = """
name = "try"
base = "quickstart"
random_seeds = [1, 2]
[[runs]]
label = "a"
set = { "reward.kind" = "intragroup" }
[[runs]]
label = "b 1/2"
[runs.set.reward]
kind = "binary"
calibration_eighths = 0
"""


def written(folder: Path, text: str = BASIC) -> Path:
    path = folder / "try.toml"
    path.write_text(text, encoding="utf-8")
    return path


def plan_of(folder: Path, text: str = BASIC, *overrides: tuple[str, str], **options: Any) -> Plan:
    return make_plan(written(folder, text), overrides, **options)


def names(plan: Plan) -> list[str]:
    return [cell.name for cell in plan.cells]


# ---------------------------------------------------------------- planning


def test_a_plan_goes_by_random_seed_and_shares_one_start(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert names(plan) == ["start-s1", "a-s1", "b-1-2-s1", "start-s2", "a-s2", "b-1-2-s2"]
    start, a, b = plan.cells[:3]
    assert start.config.evaluation.before and not start.config.evaluation.after
    assert not a.config.evaluation.before and a.config.evaluation.after
    assert (a.config.reward.kind, b.config.reward.kind, b.config.reward.calibration_eighths) == ("intragroup", "binary", 0)
    assert [cell.config.random_seed for cell in plan.cells] == [1, 1, 1, 2, 2, 2]
    assert plan.labels == ("start", "a", "b 1/2")
    assert plan.start_of == {"a": "start", "b 1/2": "start"}


def test_entries_times_grid_with_labels_and_no_value(tmp_path: Path) -> None:
    text = BASIC.replace('kind = "binary"', 'kind = "reference"') + (
        '[grid]\n"reward.calibration_eighths" = [0, 4]\n"reward.renewal_steps" = ["none", 7]\n'
        '[labels]\n"reward.calibration_eighths" = "{}/8"\n'
    )
    plan = plan_of(tmp_path, text, random_seeds=[5])
    assert plan.labels[1:5] == ("a 0/8 renewal_steps=none", "a 0/8 renewal_steps=7", "a 4/8 renewal_steps=none", "a 4/8 renewal_steps=7")
    assert [cell.config.reward.renewal_steps for cell in plan.cells[1:3]] == [None, 7]
    assert plan.places == {}  # two axes


def test_a_grid_of_one_axis_has_places(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 'name = "t"\nbase = "quickstart"\n[grid.train]\nlr = [1e-4, 1e-3]\n')
    assert plan.places == {"lr=0.0001": ("t", 1e-4), "lr=0.001": ("t", 1e-3)}


@pytest.mark.parametrize(
    ("extra", "starts"),
    [
        ("", ["start of a", "start of b 1/2"]),
        ('[set]\n"evaluation.clean_persona" = true\n', ["start"]),
        ("start = false\n", []),
        ('[set]\nevaluation.profile = "off"\n', []),
    ],
)
def test_starts_are_shared_where_their_evaluation_is_the_same(tmp_path: Path, extra: str, starts: list[str]) -> None:
    single = '\n[runs.set.targets]\nclean_from_pool = false\nclean = { model = "sim/target", args = { random_seed = 9 } }\n'
    head, _, runs = BASIC.partition("[[runs]]")
    plan = plan_of(tmp_path, f"{head}{extra}[[runs]]{runs}{single}")
    assert [label for label in plan.labels if label.startswith("start")] == starts
    assert all(cell.config.evaluation.before == (not starts) for cell in plan.cells if not cell.is_start)


def test_only_seeds_and_overrides(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, BASIC, ("train.steps", "3"), only=["a"], random_seeds=[2])
    assert names(plan) == ["start-s2", "a-s2"]
    assert plan.cells[1].config.train.steps == 3


BAD: Mapping[str, tuple[str, Sequence[str]]] = {
    "unknown key": (BASIC.replace("random_seeds", "random_seed"), ["try.toml: random_seed: unknown key", "did you mean 'random_seeds'"]),
    "nothing to run": ('name = "t"\nbase = "quickstart"\n', ["nothing to run", "[[runs]]"]),
    "no base": (BASIC.replace('"quickstart"', '"nowhere"'), ["base: no config 'nowhere'"]),
    "grid key": (BASIC + '[grid]\n"reward.calibration" = [0, 4]\n', ["'a calibration=0'", "reward.calibration: unknown key"]),
    "grid section": (BASIC + '[grid]\n"rewards.kind" = ["a"]\n', ["rewards: unknown key", "did you mean 'reward'"]),
    "grid value": (BASIC + '[grid]\n"train.lr" = 0.1\n', ["grid.train.lr: a list of values is needed", "[set]"]),
    "grid empty": (BASIC + '[grid]\n"train.lr" = []\n', ["grid.train.lr: a list of values is needed"]),
    "bad value": (BASIC + '[grid]\n"train.lr" = [0.1, -1]\n', ["'a lr=-1'", "train.lr"]),
    "one label twice": (BASIC.replace("b 1/2", "a"), ["two runs are called 'a'"]),
    "one folder twice": (BASIC.replace('"a"', '"b 1-2"'), ["as a folder: b-1-2"]),
    "a start's label": (BASIC.replace('"a"', '"start over"'), ["names that begin with 'start'"]),
    "same run": (BASIC.replace("binary", "intragroup").replace("calibration_eighths = 0", "calibration_eighths = 4"), ["same run"]),
    "own key": (BASIC.replace('"reward.kind"', '"random_seed"').replace('"intragroup"', "4"), ["random_seed is set by the sweep"]),
    "seed twice": (BASIC.replace("[1, 2]", "[1, 1]"), ["holds one twice"]),
    "expect form": (BASIC + '[[expect]]\nmetric = "composite"\nhigher = "a"\n', ["expect.0", "one form is needed"]),
    "expect label": (BASIC + '[[expect]]\nmetric = "composite"\nof = "c"\nat_least = 1\n', ["expect.0: no run is called 'c'", "labels: a, b 1/2"]),
    "published label": (BASIC + '[published]\nc = { reward = "binary" }\n', ["published: no run is called 'c'"]),
    "label form": (BASIC + '[grid]\n"train.lr" = [0.1]\n[labels]\n"train.lr" = "{}{}"\n', ["labels.train.lr", "{}"]),
    "label of nothing": (BASIC + '[labels]\n"train.lr" = "{}"\n', ["labels.train.lr: not a key of [grid]"]),
    "not TOML": ("name = ", ["not valid TOML"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_told_with_key_and_mend(case: str, tmp_path: Path) -> None:
    text, told = BAD[case]
    with pytest.raises(ConfigError) as raised:
        plan_of(tmp_path, text)
    assert all(words in str(raised.value) for words in ["try.toml", *told]), str(raised.value)


def test_an_override_of_what_the_sweep_varies_is_refused(tmp_path: Path) -> None:
    text = 'name = "t"\nbase = "quickstart"\n[grid]\n"train.lr" = [1e-4, 1e-3]\n'
    with pytest.raises(ConfigError, match=r"'lr=0.0001' and 'lr=0.001' are the same run"):
        plan_of(tmp_path, text, ("train.lr", "0.1"))
    with pytest.raises(ConfigError, match=r"--only: no run is called 'c'"):
        plan_of(tmp_path, only=["c"])


def test_a_base_beside_the_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(Path(str(find_sweep("rewards"))).parent.with_name("quickstart.toml").read_text() + "\n")
    plan = plan_of(tmp_path, BASIC.replace('"quickstart"', '"mine.toml"'))
    assert plan.cells[1].config.train.steps == 40
    (tmp_path / "mine.toml").write_text("name = ")
    with pytest.raises(ConfigError, match="mine.toml: not valid TOML"):
        plan_of(tmp_path, BASIC.replace('"quickstart"', '"mine.toml"'))


@pytest.mark.parametrize("name", packaged_sweeps())
def test_shipped_sweeps_resolve(name: str) -> None:
    path = find_sweep(name)
    assert path == find_sweep(f"sweeps/{name}") == find_sweep(f"configs/sweeps/{name}.toml")
    plan = make_plan(path)
    check_published(plan)
    assert plan.file.name == name
    assert plan.file.expect
    assert plan.labels.count("start") == 1  # one start for all
    assert all(cell.config.simulated for cell in plan.cells)


def test_the_five_sweeps_of_the_docs_ship() -> None:
    assert set(packaged_sweeps()) >= {"rewards", "dose", "refresh", "targets", "concerningness"}
    with pytest.raises(ConfigError, match="packaged sweeps: concerningness, dose"):
        find_sweep("reward")


@pytest.mark.parametrize(("label", "folder"), [("intragroup 0/8", "intragroup-0-8"), ("../x", "x"), ("ä/..", "run"), ("a b", "a-b")])
def test_labels_make_safe_folders(label: str, folder: str) -> None:
    assert slug(label) == folder


# ---------------------------------------------------------------- running, with stand-in processes

CHILD = """
import json, pathlib, sys, time
run, steps, code, wait, start = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5] == "start"
(run / "began").open("a").write(f"{time.time()}\\n")
try:
    time.sleep(wait)
except KeyboardInterrupt:
    sys.exit(130)
rows = run / "metrics.jsonl"
have = rows.read_text().count("\\n") if rows.exists() else 0
with rows.open("a") as stream:
    for step in range(have, 0 if start else steps):
        stream.write(json.dumps({"step": step + 1, "reward": 0.5}) + "\\n")
card = run / "evaluation" / ("before" if start else "after") / "scorecard.json"
if code == 0:
    card.parent.mkdir(parents=True, exist_ok=True)
    card.write_text("{}")
else:
    print("auditrl: this is why")
sys.exit(code)
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Replaces the real processes: `steps`, `code` and `wait` by cell name; returns the names in the order in which they were begun."""
    begun: list[str] = []

    def use(steps: Mapping[str, int] | None = None, code: Mapping[str, int] | None = None, wait: float = 0.0) -> list[str]:
        def command(cell: Cell, path: Path) -> list[str]:
            begun.append(cell.name)
            made = (steps or {}).get(cell.name, cell.config.train.steps)
            kind = "start" if cell.is_start else "run"
            return [sys.executable, "-S", "-c", CHILD, str(path), str(made), str((code or {}).get(cell.name, 0)), str(wait), kind]

        monkeypatch.setattr(sweep, "command", command)
        monkeypatch.setattr(sweep, "POLL_S", 0.01)
        return begun

    return use


def states(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {outcome.cell: outcome.state for outcome in outcomes}


def test_stops_are_outcomes_and_failures_do_not_hold_up_the_others(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    plan, out = plan_of(tmp_path), tmp_path / "out"
    stand_in(steps={"a-s1": 12, "b-1-2-s1": 3, "a-s2": 20}, code={"a-s1": 6, "b-1-2-s1": 4, "a-s2": 7})
    found = run_sweep(plan, out, 2, NoDisplay())
    assert states(found) == {
        "start-s1": "finished", "a-s1": "stopped", "b-1-2-s1": "failed", "start-s2": "finished", "a-s2": "stopped", "b-1-2-s2": "finished",
    }  # fmt: skip
    by_name = {outcome.cell: outcome for outcome in found}
    assert (by_name["a-s1"].step, by_name["a-s1"].code, by_name["a-s1"].reason) == (12, 6, "this is why")
    assert by_name["b-1-2-s1"].reason == "this is why"

    begun = stand_in()
    begun.clear()
    again = run_sweep(plan, out, 2, NoDisplay())
    assert begun == ["b-1-2-s1"]  # the failed one alone is tried again
    assert states(again)["b-1-2-s1"] == "finished"
    assert len(open_run(out / "b-1-2-s1").metrics()) == 40
    assert states(again)["a-s1"] == "stopped"


def test_at_most_so_many_at_a_time(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    plan = plan_of(tmp_path)
    stand_in(wait=0.15)
    began = time.time()
    run_sweep(plan, tmp_path / "out", 2, NoDisplay())
    starts = sorted(float((tmp_path / "out" / name / "began").read_text()) for name in names(plan))
    # with two places the third process cannot begin before the first has slept
    assert all(later - earlier > 0.14 for earlier, later in zip(starts, starts[2:], strict=False))
    assert time.time() - began > 0.45


def test_an_interrupted_sweep_ends_its_runs_and_goes_on(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    plan, out = plan_of(tmp_path), tmp_path / "out"
    stand_in(wait=60.0)

    def stop() -> None:
        while not (out / "a-s1" / "began").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, out, 2, NoDisplay())
    stopper.join()
    assert time.monotonic() - began < 30
    assert {standing(cell, out).state for cell in plan.cells} == {"unfinished"}
    begun = stand_in()
    begun.clear()
    assert set(states(run_sweep(plan, out, 2, NoDisplay())).values()) == {"finished"}
    assert begun == names(plan)


def test_a_run_that_was_gone_on_with_by_hand_is_not_stopped_any_more(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    plan, out = plan_of(tmp_path, only=["a"], random_seeds=[1]), tmp_path / "out"
    stand_in(steps={"a-s1": 12}, code={"a-s1": 6})
    assert states(run_sweep(plan, out, 1, NoDisplay()))["a-s1"] == "stopped"
    open_run(out / "a-s1").append_metrics({"step": 13, "reward": 0.5})
    assert standing(plan.cells[1], out).state == "unfinished"


def test_folders_of_others_are_refused(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    plan, out = plan_of(tmp_path, only=["a"], random_seeds=[1]), tmp_path / "out"
    begun = stand_in()
    run_sweep(plan, out, 1, NoDisplay())
    other = plan_of(tmp_path, BASIC.replace('"try"', '"else"'))
    with pytest.raises(RunError, match="belongs to the sweep 'try', not to 'else'"):
        run_sweep(other, out, 1, NoDisplay())
    changed = plan_of(tmp_path, BASIC, ("train.lr", "0.1"))
    with pytest.raises(RunError, match=r"a-s1: this run was made with another config: train.lr \(was 0.0005, is 0.1\)"):
        run_sweep(changed, out, 1, NoDisplay())
    with pytest.raises(RunError, match="not empty and holds no sweep"):
        run_sweep(plan, tmp_path, 1, NoDisplay())
    (out / "sweep.json").write_text("{")
    with pytest.raises(RunError, match="sweep.json: can't be read"):
        run_sweep(plan, out, 1, NoDisplay())
    assert begun == ["start-s1", "a-s1"]


def test_a_start_serves_every_choice_of_labels(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    out = tmp_path / "out"
    begun = stand_in()
    run_sweep(plan_of(tmp_path, only=["b 1/2"], random_seeds=[1]), out, 1, NoDisplay())
    run_sweep(plan_of(tmp_path, random_seeds=[1]), out, 1, NoDisplay())
    assert begun == ["start-s1", "b-1-2-s1", "a-s1"]
    other_judge = plan_of(tmp_path, BASIC, ("evaluation.profile", "small"), only=["a"], random_seeds=[1])
    with pytest.raises(RunError, match=r"start-s1: .*evaluation.profile"):
        run_sweep(other_judge, out, 1, NoDisplay())


def test_whole_runs_of_other_sweeps_are_copied(tmp_path: Path, stand_in: Callable[..., list[str]]) -> None:
    stand_in(code={"b-1-2-s1": 4})
    first = plan_of(tmp_path, random_seeds=[1])
    run_sweep(first, tmp_path / "one", 2, NoDisplay())
    second = plan_of(tmp_path, BASIC.replace('"try"', '"two"'), random_seeds=[1])
    begun = stand_in()
    begun.clear()
    found = run_sweep(second, tmp_path / "two", 1, NoDisplay(), [tmp_path / "one", tmp_path / "nowhere"])
    assert begun == ["b-1-2-s1"]  # what had failed there is made here
    assert set(states(found).values()) == {"finished"}
    faster = plan_of(tmp_path, BASIC.replace('"try"', '"three"'), ("train.lr", "0.1"), only=["a"], random_seeds=[1])
    begun.clear()
    run_sweep(faster, tmp_path / "three", 1, NoDisplay(), [tmp_path / "one"])
    assert begun == ["a-s1"]  # another config is another run; the start is the same


# ---------------------------------------------------------------- results


def card_text(scores: Mapping[str, float]) -> str:
    rows = {
        suite: [
            ScoreRow(suite, "flattery", f"seed-{i}", 0, scores[suite] + (i - 1) * 0.5, {"identified": 50.0}, f"{suite}-{i}")
            for i in range(3)
        ]
        for suite in SUITES
    }
    return scorecard("x", [suite_result(suite, found) for suite, found in rows.items()], simulated=True).to_json()


def finished(out: Path, cell: Cell, scores: Mapping[str, float], rewards: Sequence[float], alarms: Sequence[int] = ()) -> Run:
    run = create_run(out, cell.config)
    place = run.path / "evaluation" / ("before" if cell.is_start else "after")
    place.mkdir(parents=True)
    (place / "scorecard.json").write_text(card_text(scores))
    lines: list[str] = []
    for step, reward in enumerate(rewards, start=1):
        row: dict[str, Any] = {"step": step, "reward": reward, "reward_planted": reward, "firm_on_clean": 0.1}
        row |= {"probe": {"quality": 60.0, "fp_calibration": 90.0}} if step % 5 == 0 else {}
        lines.append(json.dumps({**row, **({"alarms": [{"alarm": "false_accusations"}]} if step in alarms else {})}) + "\n")
    run.metrics_file.write_text("".join(lines))
    return run


EXPECTED = (
    BASIC
    + """
[published]
"b 1/2" = { reward = "binary", epochs = 2 }
[[expect]]
metric = "fp_calibration"
lower = "b 1/2"
than = "start"
by = 30
says = "falls"
[[expect]]
metric = "composite"
best = ["a"]
"""
)


@pytest.fixture
def done(tmp_path: Path) -> tuple[Plan, Path]:
    """Two labels under two random seeds: b collapses, and raises alarms from step 10 on."""
    plan, out = plan_of(tmp_path, EXPECTED), tmp_path / "out"
    for cell in plan.cells:
        level = {"start": 80.0, "a": 90.0, "b 1/2": 30.0}[cell.label] + cell.random_seed
        scores = dict.fromkeys(SUITES, level)
        rewards = [] if cell.is_start else [0.01 * step for step in range(1, 41)]
        finished(out, cell, scores, rewards, (10, 15) if cell.label == "b 1/2" else ())
    return plan, out


def test_values_of_a_run(done: tuple[Plan, Path]) -> None:
    plan, out = done
    cells = collect(plan, out)
    b = next(result for result in cells if result.cell.name == "b-1-2-s1")
    expected: Mapping[tuple[str, str], float | None] = {
        ("composite", "end"): 31.0,
        ("realism", "end"): 31.0,
        ("audit_quality.identified", "end"): 50.0,
        ("audit_quality.unheard_of", "end"): None,
        ("reward", "end"): 0.365,  # steps 33-40
        ("reward", "begin"): 0.045,  # steps 1-8
        ("target_view", "end"): 36.5,
        ("auditor_view", "end"): None,
        ("probe.quality", "end"): 60.0,
        ("alarms", "end"): 2.0,
        ("alarm_step", "end"): 10.0,
        ("alarm_share", "end"): 0.25,
        ("nothing.like.it", "end"): None,
    }
    for (metric, moment), wanted in expected.items():
        found = value(b, metric, moment)
        assert found == (wanted if wanted is None else pytest.approx(wanted)), metric
    assert by_seed(cells, "a", "alarm_share") == {1: 1.0, 2: 1.0}
    assert by_seed(cells, "a", "alarm_step") == {}
    assert by_seed(cells, "start", "alarms") == {}
    interval = over_seeds(cells, "a", "composite")
    assert interval is not None
    assert (interval.mean, interval.n) == (91.5, 2)


@pytest.mark.parametrize(
    ("form", "verdict", "effect"),
    [
        ({"lower": "b 1/2", "than": "start"}, "came out", 50.0),
        ({"lower": "b 1/2", "than": "start", "by": 49.9}, "came out", 50.0),
        ({"lower": "b 1/2", "than": "start", "by": 50.1}, "did not", 50.0),
        ({"higher": "b 1/2", "than": "a"}, "did not", -60.0),
        ({"of": "a", "at_least": 91}, "came out", 91.5),
        ({"of": "a", "at_least": 91.2}, "undecided", 91.5),
        ({"of": "a", "at_most": 91}, "did not", 91.5),
        ({"best": ["a"]}, "came out", 60.0),
        ({"best": ["b 1/2"]}, "did not", -60.0),
    ],
)
def test_expectations(done: tuple[Plan, Path], form: Mapping[str, Any], verdict: str, effect: float) -> None:
    plan, out = done
    finding = examine(Expect.model_validate({"metric": "fp_calibration", **form}), collect(plan, out), plan)
    assert finding.verdict == verdict
    assert finding.effect is not None
    assert finding.effect.mean == pytest.approx(effect)


def test_expectations_over_steps_and_without_data(done: tuple[Plan, Path]) -> None:
    plan, out = done
    cells = collect(plan, out)

    def verdict(**form: Any) -> str:
        return examine(Expect.model_validate(form), cells, plan).verdict

    assert verdict(metric="reward", higher="a@end", than="a@begin") == "came out"
    assert verdict(metric="alarms", of="a", at_most=0) == "came out"
    assert verdict(metric="alarm_share", of="b 1/2", at_most=0.5) == "came out"
    assert verdict(metric="alarm_share", of="a", at_most=0.5) == "did not"
    assert verdict(metric="auditor_view", higher="a", than="b 1/2") == "no data"
    assert verdict(metric="auditor_view", best=["a"]) == "no data"
    assert verdict(metric="auditor_view", of="a", at_most=1) == "no data"
    one = [result for result in cells if result.cell.random_seed == 1]
    assert examine(Expect(metric="composite", higher="a", than="start"), one, plan).verdict == "undecided"


def test_a_noisy_difference_is_undecided(tmp_path: Path) -> None:
    plan, out = plan_of(tmp_path), tmp_path / "out"
    for cell, level in zip(plan.cells, (50.0, 60.0, 50.0, 50.0, 52.0, 50.0), strict=True):
        finished(out, cell, dict.fromkeys(SUITES, level), [] if cell.is_start else [0.5] * 40)
    found = examine(Expect(metric="composite", higher="a", than="start"), collect(plan, out), plan)
    assert found.verdict == "undecided"
    assert found.detail == "50.0 to 60.0, 50.0 to 52.0"


def test_results_are_written_with_the_published_rows_beside(done: tuple[Plan, Path]) -> None:
    plan, out = done
    results, files = write_results(plan, out)
    assert {file.name for file in files} == {f"{n}.{k}" for n in ("results", "curves") for k in ("png", "svg")} | {
        "results.csv",
        "results.json",
        "results.md",
    }
    assert [finding.verdict for finding in results.findings] == ["came out", "came out"]
    page = (out / "results.md").read_text()
    assert "| b 1/2 | 31.5 ± 6.4 |" in page
    assert "| binary 0/8, single-target, epoch 2 [published, not reproduced] | 69.3 ± 2.7 | 71.5 ± 6.2 |" in page
    assert "no evidence about real models" in page
    assert "First alarm" in page
    lines = (out / "results.csv").read_text().splitlines()
    assert lines[0].startswith("label,audit_quality,audit_quality_low,audit_quality_high,audit_quality_n,")
    data = json.loads((out / "results.json").read_text())
    assert data["labels"]["a"]["composite"]["mean"] == 91.5
    assert [cell["values"].get("alarm_step") for cell in data["cells"] if cell["label"] == "b 1/2"] == [10.0, 10.0]
    assert data == json.loads(json.dumps(as_json(gather(plan, out)), allow_nan=False))
    assert "<svg" in (out / "curves.svg").read_text()


def test_results_of_an_unfinished_sweep_say_how_it_stands(done: tuple[Plan, Path]) -> None:
    plan, out = done
    for name in ("a-s2", "start-s2"):
        (out / name / "run.json").unlink()
    (out / "b-1-2-s2" / "metrics.jsonl").write_text('{"step": 1, "reward": 0.1}\n')
    results, _ = write_results(plan, out)
    assert [row.cells[-1] for row in results.table.rows if not row.mark] == [
        "1 finished, unfinished 2 (step 0)", "1 finished, unfinished 2 (step 0)", "1 finished, unfinished 2 (step 1)",
    ]  # fmt: skip
    with pytest.raises(RunError, match="has results yet"):
        collect(plan, out / "nowhere")
    part = make_plan(Path(plan.source), only=["a"])
    assert [finding.statement for finding in gather(part, out).findings] == ["composite: best of all is a"]


def test_a_grid_of_one_axis_is_drawn_over_it_with_published_values(tmp_path: Path) -> None:
    path = find_sweep("dose")
    plan, out = make_plan(path, random_seeds=[1]), tmp_path / "out"
    for cell in plan.cells:
        finished(out, cell, dict.fromkeys(SUITES, 50.0 + cell.random_seed), [] if cell.is_start else [0.5] * 40)
    _, files = write_results(plan, out)
    assert {"axis.png", "axis.svg"} <= {file.name for file in files}
    drawn = (out / "axis.svg").read_text()
    assert all(text in drawn for text in ("intragroup, published", "reference, published", "reward.calibration_eighths"))


def test_published_rows_are_picked_by_their_columns() -> None:
    assert published_row({"reward": "reference", "calibration_eighths": 0, "refresh_steps": "never", "epochs": 1}, "x").composite == 44.7
    with pytest.raises(ConfigError, match="3 published rows fit"):
        published_row({"reward": "binary"}, "f: published.a")
    with pytest.raises(ConfigError, match="unknown column 'design'"):
        published_row({"design": "binary"}, "f: published.a")


def test_panels_share_colours_and_need_something_to_draw() -> None:
    spans = [Interval(0.5, 0.4, 0.6, 0.1, 3)] * 15
    one = figures.Series("a", range(15), spans)
    two = figures.Series("b", [1.0, 2.0], [0.1, 0.2], dashed=True)
    drawn = figures.to_svg(figures.panels([figures.Panel("first", "u", [two]), figures.Panel("second", "", [one, two])], x="step"))
    assert drawn.count(figures.PALETTE[0]) > 0
    assert "second" in drawn
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.panels([], x="step")


# ---------------------------------------------------------------- the command


def run_command(*args: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["sweep", *args])


def test_the_report_of_what_is_there(done: tuple[Plan, Path]) -> None:
    plan, out = done
    shown = run_command(plan.source, "--out", str(out), "--report")
    assert shown.exit_code == 0, shown.output
    assert "CAME OUT: fp_calibration: b 1/2 lower than start by 30 (falls): +50.00 ± 0.00 [81.0 to 31.0, 82.0 to 32.0]" in shown.output
    assert f"{out / 'results.csv'}" in shown.output


def test_bad_arguments(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    for args, told in (
        ((path, "--seeds", "3"), "--seeds 3"),
        ((path, "--report", "--out", str(tmp_path / "no")), "has results yet"),
        ((str(tmp_path / "none.toml"),), "no such sweep file"),
        ((path, "--train.stepz", "4", "--dry-run"), "train.stepz: unknown key"),
    ):
        shown = run_command(*args)
        assert isinstance(shown.exception, AuditrlError), args
        assert told in str(shown.exception)


def test_failed_cells_stand_in_the_exit_code(tmp_path: Path, stand_in: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        """Neither the check that needs Inspect and the bank (tests/e2e has it), nor scores: a stand-in leaves none."""

    path = str(written(tmp_path, BASIC.replace("random_seeds", "start = false\nrandom_seeds")))
    monkeypatch.setattr("auditrl.commands.sweep._check", nothing)
    monkeypatch.setattr("auditrl.analysis.sweep_results.read_card", nothing)
    stand_in(code={"b-1-2-s1": 4}, steps={"b-1-2-s1": 3})
    shown = run_command(path, "--out", str(tmp_path / "out"), "--display", "none", "--jobs", "2")
    assert isinstance(shown.exception, RunError)
    assert "1 of 4 cells are not done" in str(shown.exception)
    assert "b-1-2-s1: failed (exit code 4): this is why" in shown.output
    assert (tmp_path / "out" / "results.md").exists()
