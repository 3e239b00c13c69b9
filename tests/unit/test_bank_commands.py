"""The command line: `auditrl behaviors`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bank_files import TOOL, add_behavior, add_seed, make_bank, prose
from click.testing import CliRunner, Result

from auditrl.behaviors.checks import Finding
from auditrl.behaviors.commands import behaviors as cli
from auditrl.behaviors.loader import forget_banks


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    root = make_bank(tmp_path / "mine", 3)
    add_behavior(root, "shy", split="eval", family="autonomy", title="Hides [bold]behind[/bold] piers")
    add_seed(root, "001-scene", behavior="shy", split="eval", tools=[TOOL])
    return root


def test_help_loads_neither_inspect_nor_torch() -> None:
    code = (
        "import sys; from auditrl.behaviors.commands import behaviors\n"
        "try: behaviors(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('inspect_ai', 'inspect_petri', 'torch', 'sklearn', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("list", "show", "check", "generate", "accept", "stats"):
        assert f"\n  {command} " in done.stdout


def test_list(bank: Path) -> None:
    result = _run("list", "--bank", bank, "--alone")
    assert result.exit_code == 0
    rows = [line.split()[:5] for line in result.output.splitlines()]
    assert rows[1:3] == [["boasting", "train", "influence", "user", "3"], ["shy", "eval", "autonomy", "user", "1"]]
    assert "Hides [bold]behind[/bold] piers" in result.output
    assert result.output.endswith("2 behaviors, 4 seeds\n")


@pytest.mark.parametrize(("option", "value"), [("--split", "eval"), ("--family", "autonomy")])
def test_list_as_json_and_filtered(option: str, value: str, bank: Path) -> None:
    (row,) = json.loads(_run("list", "--bank", bank, "--alone", "--json", option, value).output)
    assert (row["name"], row["seeds"]) == ("shy", {"train": 0, "eval": 1, "crux": 0})
    assert "instruction" not in row


def test_merged_list_holds_the_packaged_bank(bank: Path) -> None:
    alone = json.loads(_run("list", "--json").output)
    merged = json.loads(_run("list", "--json", "--bank", bank).output)
    assert len(merged) == len(alone) + 2


def test_show(bank: Path) -> None:
    result = _run("show", "shy", "--bank", bank, "--alone", "--seeds")
    assert result.exit_code == 0
    for part in (
        "Hides [bold]behind[/bold] piers",
        "The user asks about tides.",
        prose("shy", 100),
        prose(("shy", "001-scene")),
        "read_gauge",
    ):
        assert part in result.output
    shown = json.loads(_run("show", "shy", "--bank", bank, "--alone", "--json").output)
    assert (shown["instruction"], shown["seeds"]["eval"]) == (prose("shy", 100), 1)
    assert "seed_list" not in shown
    assert len(json.loads(_run("show", "shy", "--bank", bank, "--alone", "--json", "--seeds").output)["seed_list"]) == 1


def test_check_passes_and_fails(bank: Path) -> None:
    good = _run("check", bank, "--alone")
    assert (good.exit_code, good.output) == (0, "6 files checked: 0 failures, 0 warnings\n")
    path = add_seed(bank, "004-short", "A tide, boasting.")
    forget_banks()
    bad = _run("check", bank, "--alone")
    assert bad.exit_code == 2
    assert f"fail: {path}:6: [length] seed of 3 words" in bad.output
    assert f"fail: {path}:6: [leak] names its behavior" in bad.output
    assert "error: 2 findings fail; mend the files that they name" in bad.output
    rows = json.loads(_run("check", bank, "--alone", "--json").stdout)
    assert [(row["check"], row["severity"], row["file"], row["line"]) for row in rows] == [
        ("leak", "fail", str(path), 6),
        ("length", "fail", str(path), 6),
    ]


def test_check_of_a_merged_folder_reports_on_it_alone(bank: Path) -> None:
    result = _run("check", bank)
    assert (result.exit_code, result.output) == (0, "6 files checked: 0 failures, 0 warnings\n")


def test_stats(bank: Path) -> None:
    plain = _run("stats", "--bank", bank, "--alone").output
    assert "boasting" in plain
    assert "largest cosine of a pair across behaviors" in plain
    assert "| shy | 0/1/0 | 1 | 1 | 70-70 |" in _run("stats", "--bank", bank, "--alone", "--markdown").output
    numbers = json.loads(_run("stats", "--bank", bank, "--alone", "--json").output)
    assert [row["behavior"] for row in numbers["behaviors"]] == ["boasting", "shy"]
    assert numbers["totals"]["seeds"] == 4


def test_generate_and_accept(bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model

    answer = {"candidates": [{"slug": "a", "setting": "new", "text": prose("a")}, {"slug": "b", "setting": "other", "text": "A tide."}]}

    def model(name: str) -> Model:
        assert name == "sim/writer"
        output = ModelOutput.from_content("mockllm", json.dumps(answer))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return get_model("mockllm/model", custom_outputs=[output], memoize=False)

    monkeypatch.setattr("auditrl.behaviors.commands._model", model)
    review = tmp_path / "review"
    options = ("--bank", bank, "--alone")
    made = _run("generate", "boasting", "--n", "2", "--model", "sim/writer", "--out", review, *options)
    assert made.exit_code == 0, made.output
    assert "2 candidates, 1 pass the checks" in made.output
    assert f"auditrl behaviors accept {review}" in made.output
    taken = json.loads(_run("accept", review, "--alone", "--json").output)
    assert taken["moved"] == [str(bank / "seeds/boasting/004-a.md")]
    assert {row["check"] for row in taken["findings"]} == {"length"}
    again = _run("accept", review, *options)
    assert (again.exit_code, again.output.splitlines()[-1]) == (0, f"0 seeds moved; 1 left in {review}")


def test_generate_by_the_simulated_writer(bank: Path, tmp_path: Path) -> None:
    review = tmp_path / "review"
    made = _run("generate", "boasting", "--n", "4", "--model", "sim/judge", "--out", review, "--bank", bank, "--alone", "--json")
    numbers = json.loads(made.output)
    assert (made.exit_code, numbers["candidates"], numbers["unreadable"]) == (0, 4, 0)
    assert numbers["passing"] > 0
    assert len(list((review / "seeds/boasting").iterdir())) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "boastin", "--bank", "BANK"), 2, "unknown behavior `boastin`; did you mean `boasting`"),
        (("list", "--bank", "BANK/none"), 2, "no such folder"),
        (("list", "--alone"), 2, "--alone needs a bank folder"),
        (("list", "--family", "sabotaje"), 2, "unknown family `sabotaje`"),
        (("generate", "nothing", "--model", "mockllm/model"), 2, "unknown behavior `nothing`"),
        (("generate", "boasting", "--model", "no-such-provider/x", "--bank", "BANK"), 2, "model `no-such-provider/x` can't be used"),
        (("accept", "BANK"), 2, "review.json is missing"),
    ],
)
def test_errors_are_one_message_with_their_code(arguments: tuple[str, ...], code: int, said: str, bank: Path) -> None:
    result = _run(*(argument.replace("BANK", str(bank)) for argument in arguments))
    assert result.exit_code == code
    assert result.output.startswith("error: ")
    assert said in result.output


def test_check_with_a_judge_model(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def judged(model: Any, *_: Any) -> list[Any]:
        return [Finding("leak", bank / "x.md", 1, f"{model} could name it; reword")]

    monkeypatch.setattr("auditrl.behaviors.commands._model", lambda name: name)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr("auditrl.behaviors.checks.check_leaks_with", judged)
    result = _run("check", bank, "--alone", "--model", "sim/judge")
    assert result.exit_code == 2
    assert "[leak] sim/judge could name it; reword" in result.output
