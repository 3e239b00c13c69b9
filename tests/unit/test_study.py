"""The study: what it plans, runs behind the training, computes from saved rows, and says about what is missing."""

from __future__ import annotations

import csv
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click.testing
import pytest

from auditrl import processes
from auditrl.analysis.published import crux_prediction
from auditrl.analysis.stats import Interval
from auditrl.analysis.sweep_report import check_published
from auditrl.cli import cli
from auditrl.display import NoDisplay
from auditrl.errors import ConfigError, RunError
from auditrl.evals.crux import FEATURES, CruxResult
from auditrl.evals.scores import SUITES, ScoreRow, scorecard, suite_result
from auditrl.evals.transfer.score import ApproachResult, Rate, TransferResult
from auditrl.runs import Run, create_run, open_run
from auditrl.study import stages as stages_module
from auditrl.study.data import Effect, StudyData, difference, read_study, score
from auditrl.study.items import MAKERS
from auditrl.study.page import write_study
from auditrl.study.plan import ITEMS, Study, make_study, open_folder, profiles, take_over
from auditrl.study.regress import TARGETS, fits
from auditrl.study.stages import Stage, run_stages, stages
from auditrl.study.verdicts import FINDINGS, Finding, judge, judge_all
from auditrl.train.sweep import sweep_folder
from auditrl.train.sweep_file import Cell, make_plan

SMALL = """
name = "study-small"
base = "quickstart"
random_seeds = [1]
[set]
train = { steps = 8, groups = 8, group_size = 2 }
"evaluation.clean_persona" = true
[[runs]]
label = "binary"
set = { "reward.kind" = "binary", "reward.calibration_eighths" = 0 }
[[runs]]
label = "intragroup 0/8"
set = { "reward.kind" = "intragroup", "reward.calibration_eighths" = 0 }
[[runs]]
label = "intragroup 4/8"
set = { "reward.kind" = "intragroup" }
[[runs]]
label = "reference 4/8"
[published]
"intragroup 4/8" = { reward = "intragroup", calibration_eighths = 4, targets = "single", epochs = 2 }
"""
SCORES: Mapping[str, tuple[float, float, float, float]] = {
    "start": (40, 82, 20, 30),
    "binary": (8, 40, 46, 2),
    "intragroup 0/8": (58, 5, 30, 20),
    "intragroup 4/8": (62, 97, 10, 40),
    "reference 4/8": (63, 98, 11, 45),
}
"""Quality, calibration, production, realism by label: what a study would find."""


def small(folder: Path, *only: str, text: str = SMALL, overrides: Sequence[tuple[str, str]] = ()) -> Study:
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    return make_study(str(file), only, folder / "out", overrides)


def card_text(values: Sequence[float]) -> str:
    """A scorecard of six scenario seeds a suite around the given scores."""
    results = [
        suite_result(
            suite,
            [
                ScoreRow(suite, "flattery", f"s{i}", 0, min(100.0, max(0.0, value + i % 3 - 1)), parts(value), f"{suite}{i}")
                for i in range(6)
            ],
        )
        for suite, value in zip(SUITES, values, strict=True)
    ]
    return scorecard("x", results, simulated=True).to_json()


def parts(value: float) -> dict[str, float]:
    names = {key.partition(".")[2] for key in TARGETS.values()} - {""}
    return dict.fromkeys(names, value)


def finished(study: Study, cell: Cell, *, steps: int | None = None, scored: bool = True) -> Run:
    run = create_run(study.cells, cell.config)
    if scored:
        place = run.path / "evaluation" / ("before" if cell.is_start else "after")
        place.mkdir(parents=True)
        (place / "scorecard.json").write_text(card_text(SCORES[cell.label]))
    count = 0 if cell.is_start else cell.config.train.steps if steps is None else steps
    rows = [{"step": s, "reward": 0.1 * s, "firm_on_clean": 0.1, "probe": {"fp_calibration": 90 - 9.0 * s}} for s in range(1, count + 1)]
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def trained(study: Study, *left_out: str) -> Study:
    open_folder(study)
    with sweep_folder(study.plan, study.cells):
        for cell in study.plan.cells:
            if cell.label not in left_out:
                finished(study, cell)
    return study


# ---------------------------------------------------------------- planning


@pytest.mark.parametrize("profile", profiles())
def test_packaged_profiles_train_every_run_once(profile: str, tmp_path: Path) -> None:
    study = make_study(profile, [], tmp_path)
    check_published(study.plan)
    assert study.profile == f"study-{profile}"
    digests = [cell.config.model_copy(update={"name": "x"}).digest for cell in study.plan.cells]
    assert len(set(digests)) == len(digests)
    shown = {label for item in ITEMS for label in item.labels}
    assert {label for label in study.plan.labels if label != "start"} - shown <= {"intragroup 2/8"}
    # every item can be made: it has a run in each profile, or needs none
    assert all(not item.labels or shown & set(study.plan.labels) & set(item.labels) for item in ITEMS)


def test_the_full_profile_has_the_runs_of_the_packaged_sweeps(tmp_path: Path) -> None:
    from auditrl.config import packaged_config

    ours = {c.config.model_copy(update={"name": "x"}).digest for c in make_study("full", [], tmp_path).plan.cells if not c.is_start}
    for name in ("rewards", "dose", "refresh", "targets"):
        plan = make_plan(packaged_config(f"sweeps/{name}"))
        missing = [c.label for c in plan.cells if not c.is_start and c.config.model_copy(update={"name": "x"}).digest not in ours]
        assert not missing, name


def test_items_choose_their_runs(tmp_path: Path) -> None:
    study = make_study("quick", ["dose", "refresh"], tmp_path)
    assert [item.name for item in study.items] == ["dose", "refresh"]
    assert set(study.plan.labels) == {
        *("start", "intragroup 0/8", "intragroup 2/8", "intragroup 4/8", "reference 0/8", "reference 4/8"),
        *("never renewed", "renewed 50"),
    }
    assert not study.needs
    assert not make_study("quick", ["transfer"], tmp_path).trains
    assert make_study("quick", ["crux"], tmp_path).needs == ("crux",)


@pytest.mark.parametrize(
    ("profile", "only", "words"),
    [
        ("quick", ["fig4"], "no figure or table 'fig4'; known: verdicts, curves, rewards"),
        ("quickest", [], "'quickest' is neither a profile (full, quick) nor a sweep file"),
    ],
)
def test_bad_choices_say_what_there_is(profile: str, only: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        make_study(profile, only, tmp_path)
    assert words in str(caught.value)


def test_an_item_without_a_run_in_the_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no run for refresh; its runs: binary"):
        small(tmp_path, "refresh")


def test_a_folder_belongs_to_one_profile(tmp_path: Path) -> None:
    study = small(tmp_path)
    open_folder(study)
    open_folder(study)
    other = make_study("quick", [], study.out)
    with pytest.raises(RunError, match="belongs to the profile 'study-small', not to 'study-quick'; choose another with --out"):
        open_folder(other)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="holds no study"):
        open_folder(Study("x", (), study.plan, tmp_path / "full"))
    (study.out / "study.json").write_text("[")
    with pytest.raises(RunError, match="can't be read"):
        open_folder(study)


def test_whole_runs_of_the_same_config_are_taken_over_whatever_their_name(tmp_path: Path) -> None:
    study = small(tmp_path)
    cell = next(c for c in study.plan.cells if c.label == "binary")
    half = next(c for c in study.plan.cells if c.label == "reference 4/8")
    elsewhere = tmp_path / "runs"
    for one, name, steps in ((cell, "mine", 8), (half, "half", 3)):
        config = one.config.model_copy(update={"name": name})
        run = create_run(elsewhere, config)
        (run.path / "evaluation" / "after").mkdir(parents=True)
        (run.path / "evaluation" / "after" / "scorecard.json").write_text(card_text(SCORES["binary"]))
        run.metrics_file.write_text("".join(json.dumps({"step": s, "reward": 0.5}) + "\n" for s in range(steps)))
    with sweep_folder(study.plan, study.cells):
        assert take_over(study, [elsewhere]) == ["binary-s1"]
        assert take_over(study, [elsewhere]) == []
    copied = open_run(study.cells / "binary-s1")
    assert copied.config.digest == cell.config.digest
    assert copied.info["digest"] == cell.config.digest
    assert len(copied.metrics()) == 8
    with pytest.raises(RunError, match="no such folder"):
        take_over(study, [tmp_path / "nowhere"])


# ---------------------------------------------------------------- stages


def test_stages_are_ordinary_commands_that_parse(tmp_path: Path) -> None:
    study = make_study("quick", [], tmp_path)
    found = stages(study, ["binary-s1", "reference-4-8-s1"])
    assert [s.name for s in found][:5] == ["crux-source", "crux-bank", "crux-start-s1", "crux-binary-s1", "crux-reference-4-8-s1"]
    assert stages(study, [])[0].name == "transfer-skilled"  # nothing trained: neither cruxes nor strategies
    for stage in found:
        words = list(stage.words)
        group: Any = cli
        context = click.Context(cli)
        while isinstance(group, click.Group):
            group = group.get_command(context, words.pop(0))
        group.make_context("x", [*words, "--display", "none"], resilient_parsing=False)


def script(tmp_path: Path, name: str, code: str, **more: Any) -> Stage:
    return Stage(name, ("-c", f"from pathlib import Path\n{code}"), tmp_path / f"{name}.done", **more)


@pytest.fixture
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages whose words are Python itself, without `-m auditrl`."""
    real = processes.subprocess.Popen

    def popen(words: list[str], **options: Any) -> Any:
        return real([sys.executable, *words[3:-2]], **options)

    monkeypatch.setattr(processes.subprocess, "Popen", popen)


@pytest.mark.usefixtures("plain_python")
def test_a_stage_that_fails_holds_up_only_what_needs_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    good = script(tmp_path, "good", f"Path({str(tmp_path / 'good.done')!r}).write_text('x')")
    then = script(tmp_path, "then", f"Path({str(tmp_path / 'then.done')!r}).write_text('x')", after=good.result)
    bad = script(tmp_path, "bad", "import sys; print('auditrl: no key'); sys.exit(4)")
    needs = script(tmp_path, "needs", "", after=bad.result)
    silent = script(tmp_path, "silent", "")
    ended = {o.name: o for o in run_stages([good, then, bad, needs, silent], out, 2, NoDisplay())}
    assert ended["good"].done and ended["then"].done
    assert (ended["bad"].code, ended["bad"].reason) == (4, "no key")
    assert "needs" in ended["needs"].reason and not ended["needs"].done
    assert ended["silent"].reason == "left no silent.done"
    before = (out / "stages.jsonl").read_text().count('"good"')
    assert all(o.done for o in run_stages([good, then], out, 2, NoDisplay()))
    assert (out / "stages.jsonl").read_text().count('"good"') == before  # not run again
    changed = Stage("good", (*good.words, "again"), good.result)
    assert run_stages([changed], out, 1, NoDisplay())[0].done
    assert (out / "stages.jsonl").read_text().count('"again"') == 1  # other words: made anew


@pytest.mark.usefixtures("plain_python")
def test_an_interruption_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = script(tmp_path, "slow", "import time; time.sleep(60)")
    real, naps = time.sleep, iter([0, 1])

    def nap(seconds: float) -> None:
        if next(naps, None) == 1:
            raise KeyboardInterrupt
        real(seconds)

    monkeypatch.setattr(stages_module.time, "sleep", nap)
    begin, threads = time.monotonic(), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        run_stages([slow], tmp_path / "out", 1, NoDisplay())
    assert time.monotonic() - begin < 30
    assert threading.active_count() == threads


# ---------------------------------------------------------------- numbers and findings


def test_scores_and_differences_of_one_run_are_over_scenario_seeds(tmp_path: Path) -> None:
    data = read_study(trained(small(tmp_path)))
    found = score(data, "intragroup 0/8", "fp_calibration")
    assert found is not None and (found.mean, found.n) == (5.0, 6) and found.known
    gap = difference(data, "intragroup 4/8", "intragroup 0/8", "fp_calibration")
    assert gap is not None and gap.interval.mean == pytest.approx(92) and gap.over == "scenario seeds of one run"
    whole = difference(data, "intragroup 4/8", "start", "composite")
    assert whole is not None and whole.interval.mean == pytest.approx((22 + 15 - 10 + 10) / 4)
    assert difference(data, "intragroup 4/8", "renewed 50", "fp_calibration") is None


def test_three_random_seeds_give_an_interval_over_them(tmp_path: Path) -> None:
    data = read_study(trained(small(tmp_path, text=SMALL.replace("[1]", "[1, 2, 3]"))))
    found = score(data, "binary", "audit_quality")
    gap = difference(data, "binary", "start", "audit_quality")
    assert found is not None and (found.n, found.half) == (3, 0.0)
    assert gap is not None and gap.over == "3 random seeds" and gap.interval.n == 3


def test_findings_come_from_the_rows(tmp_path: Path) -> None:
    data = read_study(trained(small(tmp_path)))
    results = {j.finding.name: j for j in judge_all(data)}
    assert len(results) == len(FINDINGS) >= 10
    expected = {
        "Calibration rises with its dose (intragroup 4/8 over 0/8)": "reproduced",
        "Intragroup without calibration collapses (from its start)": "reproduced",
        "Binary loses calibration (from its start)": "reproduced",
        "Binary first raises target-view detection (its reward)": "reproduced",
        "Longer training without calibration is worse": "reproduced",
        "The best composite is at 4/8, against the best other dose": "reproduced",
        "Two of eight already do most of it (2/8 over 0/8)": "not testable here",
        "Default chat detects more than text completion": "not testable here",
    }
    assert {name: results[name].result for name in expected} == expected
    assert results["Two of eight already do most of it (2/8 over 0/8)"].why == "this study does not train intragroup 2/8"
    # the other way round in the rows, the other way round in the table
    for cell in data.study.plan.cells:
        if cell.label == "intragroup 4/8":
            place = data.study.cells / cell.name / "evaluation" / "after" / "scorecard.json"
            place.write_text(card_text((10, 1, 50, 10)))
    again = {j.finding.name: j.result for j in judge_all(read_study(data.study))}
    assert again["Calibration rises with its dose (intragroup 4/8 over 0/8)"] == "not reproduced"
    assert again["Intragroup 4/8 keeps calibration (loses less than 5 points)"] == "not reproduced"


@pytest.mark.parametrize(
    ("low", "high", "margin", "result"),
    [
        (0.1, 2, 0, "reproduced"),
        (-2, -0.1, 0, "not reproduced"),
        (-1, 1, 0, "not testable here"),
        (39, 45, 40, "not testable here"),
        (41, 45, 40, "reproduced"),
        (-4, 1, -5, "reproduced"),
        (1, 39, 40, "not reproduced"),
        (math.nan, math.nan, 0, "not testable here"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(low: float, high: float, margin: float, result: str, tmp_path: Path) -> None:
    effect = Effect(Interval((low + high) / 2, low, high, (high - low) / 2, 6), "x")
    data = StudyData(small(tmp_path), (), {}, (), (), ())
    assert judge(Finding("x", "x", lambda _: effect, margin), data).result == result


def crux_result(folder: Path, name: str, quality: float) -> None:
    values = {f: quality * (1 + i) % 37 + i for i, f in enumerate(FEATURES)} | {"target_view": quality}
    features = {f: Interval.around(v, 1.0, 12) for f, v in values.items()}
    result = CruxResult(auditor=name, base="b", simulated=True, features=features, cruxes=12, audits=24, failed=0, missing={})
    (folder / name).mkdir(parents=True)
    (folder / name / "crux.json").write_text(result.model_dump_json())


def test_cruxes_are_regressed_where_there_are_enough_policies(tmp_path: Path) -> None:
    text = SMALL.replace("[1]", "[1, 2]")
    study = trained(small(tmp_path, "crux", "verdicts", text=text))
    for cell in study.plan.cells:
        crux_result(study.out / "crux", cell.name, SCORES[cell.label][0] + cell.random_seed)
    found = {fit.target: fit for fit in fits(read_study(study))}
    assert set(found) == {row.target for row in crux_prediction()}
    fit = found["identification rate"]
    assert fit.n == 10 and fit.three is not None and fit.three.r2 > 0.9
    assert fit.eight is not None or "8 features" in fit.why
    few = StudyData(study, read_study(study).cells[:3], read_study(study).crux, (), (), ())
    assert all(f.three is None and "3 features: 3 rows" in f.why for f in fits(few))


# ---------------------------------------------------------------- output


def transferred(out: Path) -> None:
    for i, name in enumerate(stages_module.TRANSFER_AUDITORS):
        rate = [Rate(mean=m, low=m - 5, high=m + 5, n=12) for m in (50.0 - i, 20.0)]
        approaches = tuple(ApproachResult(approach=a, detection=r, bootstrap=r) for a, r in zip(("default", "stc"), rate, strict=True))
        result = TransferResult(auditor=f"sim/auditor-{name}", scaffold="react", simulated=True, approaches=approaches)
        place = out / "transfer" / name
        place.mkdir(parents=True)
        (place / "transfer.json").write_text(result.model_dump_json())


def clustered(out: Path) -> None:
    (out / "strategies").mkdir()
    with (out / "strategies" / "composition.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["run", "step", "category", "audits", "count", "share", "share_low", "share_high"])
        for step in range(1, 9):
            writer.writerow(["<b>run</b>", step, "auditing failures", 64, 8 * step, step / 8, step / 9, 1.0])


def test_every_item_is_written_and_says_what_it_is(tmp_path: Path) -> None:
    study = trained(small(tmp_path))
    for cell in study.plan.cells:
        crux_result(study.out / "crux", cell.name, SCORES[cell.label][0])
    transferred(study.out)
    clustered(study.out)
    written = write_study(read_study(study))
    names = {path.name for path in written.files}
    for item in ITEMS:
        if item.name not in ("refresh", "targets"):
            assert f"{item.name}.csv" in names, item.name
        if item.name in ("curves", "rewards", "dose", "strategies", "transfer", "concerningness", "correlations", "crux"):
            assert {f"{item.name}.png", f"{item.name}.svg"} <= names, item.name
    assert set(MAKERS) == {item.name for item in ITEMS} - {"verdicts"}
    page = written.page.read_text(encoding="utf-8")
    assert len(page) < 15 << 20
    assert "Simulated world." in page and "no evidence about real models" in page
    assert "published, not reproduced" in page
    assert "<b>run</b>" not in page and "&lt;b&gt;run" in page
    assert "Not among the runs of this study: concerningness" in page
    rows = list(csv.DictReader((study.figures / "verdicts.csv").open()))
    default = next(row for row in rows if row["finding"].startswith("Default chat"))
    assert default["result"] == "reproduced" and float(default["effect"]) == pytest.approx(29.0)


def test_a_failed_run_is_named_and_the_rest_is_drawn(tmp_path: Path) -> None:
    study = trained(small(tmp_path, "rewards", "dose"), "binary")
    binary = next(c for c in study.plan.cells if c.label == "binary")
    finished(study, binary, steps=3, scored=False)
    outcome = {"cell": "binary-s1", "state": "failed", "step": 3, "code": 4, "reason": "no <answer>", "seconds": 1.0}
    (study.cells / "outcomes.jsonl").write_text(json.dumps(outcome) + "\n")
    written = write_study(read_study(study, ["binary-s1: failed at step 3: no <answer>"]))
    assert any("No scores of binary (failed at step 3: no <answer>)" in line for line in written.missing)
    page = written.page.read_text(encoding="utf-8")
    assert "Not done: binary-s1: failed at step 3: no &lt;answer&gt;" in page
    table = (study.figures / "rewards.csv").read_text()
    assert "intragroup 4/8" in table and "\nbinary" not in table


def test_nothing_made_yet_is_no_error(tmp_path: Path) -> None:
    study = small(tmp_path)
    open_folder(study)
    written = write_study(read_study(study))
    assert written.page.exists()
    assert written.verdicts is not None
    assert {j.result for j in judge_all(read_study(study))} == {"not testable here"}
    assert any("No policy has played the cruxes" in line for line in written.missing)


# ---------------------------------------------------------------- the command


def ask(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["study", *words])


def test_the_command_reports_without_running(tmp_path: Path) -> None:
    study = trained(small(tmp_path))
    found = ask("--profile", str(tmp_path / "small.toml"), "--out", str(study.out), "--report", "--only", "verdicts, dose")
    assert found.exit_code == 0, found.output
    assert "Published findings" in found.output and "study.html" in found.output
    assert not (study.out / "stages.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        (["--only", "table8"], ConfigError, "known: verdicts"),
        (["--profile", "none.toml"], ConfigError, "neither a profile"),
        (["--train.stepps", "3"], ConfigError, "stepps"),
    ],
)
def test_bad_words_are_refused_before_anything_is_made(words: list[str], error: type[Exception], text: str, tmp_path: Path) -> None:
    found = ask(*words, "--out", str(tmp_path / "out"))
    assert isinstance(found.exception, error)
    assert text in str(found.exception)
    assert not (tmp_path / "out").exists()


def test_missing_extras_are_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real: Callable[..., Any] = importlib.util.find_spec

    def without_torch(name: str, *rest: Any) -> Any:
        return None if name == "torch" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    found = ask("--out", str(tmp_path / "out"))
    assert isinstance(found.exception, ConfigError)
    assert "torch not installed" in str(found.exception)
