"""Loading banks: what is read, how folders merge, and that bad input is named and nothing is half-loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bank_files import TOOL, add_behavior, add_seed, make_bank, prose
from click.testing import CliRunner

from auditrl.behaviors.commands import behaviors as cli
from auditrl.behaviors.frontmatter import CANARY, parse_document, render_document
from auditrl.behaviors.loader import BankError, forget_banks, load_bank, load_seed_file, next_number
from auditrl.errors import ConfigError


def _overwrite(text: str | bytes, where: str = "seeds/boasting/003-scene.md") -> Callable[[Path], Path]:
    def break_it(root: Path) -> Path:
        path = root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return break_it


def _seed(**changes: Any) -> Callable[[Path], Path]:
    return lambda root: add_seed(root, "003-scene", **changes)


def _behavior(name: str = "boasting", **changes: Any) -> Callable[[Path], Path]:
    return lambda root: add_behavior(root, name, **changes)


def _edited(old: str, new: str) -> Callable[[Path], Path]:
    def break_it(root: Path) -> Path:
        path = root / "seeds/boasting/003-scene.md"
        path.write_text(path.read_text().replace(old, new, 1))
        return path

    return break_it


BAD: dict[str, tuple[Callable[[Path], Path], int, tuple[str, ...]]] = {
    "no front matter": (_overwrite("just text\n"), 1, ("no front matter", "start the file with a line `---`")),
    "front matter never ends": (_overwrite("---\nsplit: train\nbody\n"), 1, ("never ends", "put a line `---`")),
    "broken YAML": (_overwrite("---\nsplit: train\nsetting: 'open\n---\nbody\n"), 4, ("broken front matter", "quote values")),
    "colon in a value": (_overwrite("---\nsplit: train\nsetting: nurse: night\n---\nbody\n"), 3, ("broken front matter", "quote")),
    "impossible date": (_overwrite("---\nsetting: 2024-99-99\n---\nbody\n"), 2, ("broken front matter", "quote")),
    "a list as front matter": (_overwrite("---\n- split\n---\nbody\n"), 2, ("not a list of `key: value` lines", "write one key a line")),
    "key given twice": (_edited("split: train", "split: train\nsplit: crux"), 3, ("`split` stands twice", "keep one")),
    "unknown key": (_seed(seting="x"), 4, ("unknown key `seting`", "did you mean `setting`?")),
    "no split": (_seed(split=None), 1, ("`split` is missing", "train, eval, crux")),
    "unknown split": (_seed(split="test"), 2, ("unknown split `test`", "use one of train, eval, crux")),
    "setting is a number": (_seed(setting=7), 3, ("`setting` must be text", "quotes")),
    "tools are no list": (_seed(tools="read_gauge"), 4, ("`tools`", "correct the value")),
    "tool without a name": (_seed(tools=[{"description": "x"}]), 4, ("tool 1", "`name`")),
    "tool given twice": (_seed(tools=[TOOL, TOOL]), 4, ("`read_gauge` stands twice", "rename or remove")),
    "tool without a description": (_seed(tools=[{"name": "read"}]), 4, ("`description` is missing", "add one sentence")),
    "tool with an unknown type": (
        _seed(tools=[TOOL | {"parameters": {"properties": {"harbour": {"type": "text"}}}}]),
        4,
        ("parameter `harbour`", "JSON type"),
    ),
    "tool that requires an absent parameter": (_seed(tools=[TOOL | {"parameters": {"required": ["harbour"]}}]), 4, ("`required` names",)),
    "tool with an unknown key": (_seed(tools=[TOOL | {"handler": "x"}]), 4, ("unknown key `handler`", "use name, description")),
    "empty body": (_overwrite("---\nsplit: train\nsetting: x\n---\n \n"), 5, ("empty body", "write the text")),
    "not UTF-8": (_overwrite(b"---\nsplit: train\nsetting: caf\xe9\n---\nbody\n"), 3, ("not UTF-8 (byte 0xe9)", "save the file as UTF-8")),
    "terminal escape": (_overwrite("---\nsplit: train\nsetting: x\n---\nbo\x1b[2Jdy\n"), 5, ("control character U+001B", "remove it")),
    "eval seed of a training behavior": (_seed(split="eval"), 2, ("`split: eval`", "training behavior", "use `split: train`")),
    "seed for a missing behavior": (
        lambda root: add_seed(root, "001-scene", behavior="bosting"),
        1,
        ("`bosting`, which is no behavior", "did you mean `boasting`?", "add bank/bosting.md"),
    ),
    "seed with a bad name": (lambda root: add_seed(root, "scene"), 1, ("NNN-slug.md", "rename it")),
    "seed too deep": (_overwrite("x", "seeds/boasting/more/001-a.md"), 1, ("misplaced", "<behavior>/NNN-slug.md")),
    "behavior too deep": (_overwrite("x", "bank/more/shy.md"), 1, ("too deep", "directly in")),
    "unknown family": (_behavior(family="sabotaje"), 3, ("unknown family `sabotaje`", "deception, manipulation")),
    "unknown behavior split": (_behavior(split="crux"), 5, ("unknown split `crux`", "use one of train, eval")),
    "no description": (_behavior(description=None), 1, ("`description` is missing", "add a line")),
    "unknown behavior key": (_behavior(name_="x"), 13, ("unknown key `name_`", "remove it")),
    "behavior with a bad name": (_behavior("Boasting Much"), 1, ("no behavior name", "rename the file")),
    "behavior without instruction": (_overwrite("---\ntitle: x\n---\n", "bank/shy.md"), 4, ("empty body",)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_file_line_and_mend_and_loads_nothing(case: str, tmp_path: Path) -> None:
    break_it, line, said = BAD[case]
    path = break_it(make_bank(tmp_path))
    with pytest.raises(BankError) as caught:
        load_bank(tmp_path, merge=False)
    assert caught.value.exit_code == 2
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (path, line)
    for part in (f"{path}:{line}", "nothing was loaded", *said):
        assert part in str(caught.value)

    result = CliRunner().invoke(cli, ["check", str(tmp_path), "--alone"])
    assert result.exit_code == 2
    assert str(path) in result.output
    assert "Traceback" not in result.output


def test_a_held_out_behavior_refuses_training_seeds(tmp_path: Path) -> None:
    add_behavior(tmp_path, split="eval")
    path = add_seed(tmp_path, "001-scene", split="train")
    with pytest.raises(BankError, match="held out for evaluation; use `split: eval` or `split: crux`") as caught:
        load_bank(tmp_path, merge=False)
    assert caught.value.problems[0].file == path


def test_duplicate_id_of_a_merged_folder(tmp_path: Path) -> None:
    packaged = load_bank()
    first = next(iter(packaged.behaviors))
    seed = packaged.seeds_for(first)[0]
    add_behavior(tmp_path, first, split=packaged.behavior(first).split)
    add_seed(tmp_path, seed.id.split("/")[1], behavior=first, split=seed.split)
    with pytest.raises(BankError) as caught:
        load_bank(tmp_path)
    assert [p.file.parent.name for p in caught.value.problems] == ["bank", first]
    for problem in caught.value.problems:
        assert "duplicate id" in problem.message
        assert "rename one, or load the folder alone" in problem.message
    assert load_bank(tmp_path, merge=False).behaviors.keys() == {first}


def test_all_problems_are_collected_and_about_twenty_shown(tmp_path: Path) -> None:
    for number in range(1, 31):
        add_seed(tmp_path, f"{number:03d}-scene", split="never")
    add_behavior(tmp_path)
    with pytest.raises(BankError) as caught:
        load_bank(tmp_path, merge=False)
    assert len(caught.value.problems) == 30
    text = str(caught.value)
    assert text.startswith("the bank has 30 problems")
    assert text.count("unknown split") == 20
    assert text.endswith("... and 10 more")


def test_a_broken_behavior_is_reported_without_calling_its_seeds_orphans(tmp_path: Path) -> None:
    make_bank(tmp_path)
    add_behavior(tmp_path, family="none")
    with pytest.raises(BankError) as caught:
        load_bank(tmp_path, merge=False)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("make", "said"), [(False, "no such folder"), (True, "neither bank/ nor seeds/")])
def test_a_folder_that_is_no_bank(make: bool, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    if make:
        folder.mkdir()
    with pytest.raises(ConfigError, match=said):
        load_bank(folder)


def test_fields_are_read(tmp_path: Path) -> None:
    add_behavior(tmp_path, instruction="Boast.\n\nOften.", needs_tools=True)
    add_seed(tmp_path, "001-harbour", "Watch the tide.", tools=[TOOL], setting="pilot: harbour, terse")
    bank = load_bank(tmp_path, merge=False)
    behavior = bank.behavior("boasting")
    assert (behavior.name, behavior.instruction, behavior.needs_tools) == ("boasting", "Boast.\n\nOften.", True)
    assert behavior.activation_terms == ("tide", "tidal")
    (seed,) = bank.seeds
    assert (seed.id, seed.behavior, seed.split, seed.text) == ("boasting/001-harbour", "boasting", "train", "Watch the tide.")
    assert (seed.setting, seed.tools) == ("pilot: harbour, terse", (TOOL,))
    source = bank.sources[seed.id]
    assert source.path.read_text().splitlines()[source.line - 1] == "Watch the tide."
    assert source.canary


def test_seeds_for_training_and_held_out(tmp_path: Path) -> None:
    make_bank(tmp_path, 2)
    add_seed(tmp_path, "003-scene", split="crux")
    add_behavior(tmp_path, "shy", split="eval")
    add_seed(tmp_path, "001-scene", behavior="shy", split="eval")
    bank = load_bank(tmp_path, merge=False)
    assert [b.name for b in bank.training()] == ["boasting"]
    assert [b.name for b in bank.held_out()] == ["shy"]
    assert [s.id for s in bank.seeds_for("boasting", "train")] == ["boasting/001-scene", "boasting/002-scene"]
    assert len(bank.seeds_for("boasting")) == 3
    assert bank.seeds_for("shy", "train") == []
    assert (next_number(bank, "boasting"), next_number(bank, "other")) == (4, 1)
    with pytest.raises(ConfigError, match="unknown behavior `boastin`; did you mean `boasting`"):
        bank.seeds_for("boastin")


def test_merging_adds_behaviors_and_seeds_for_packaged_ones(tmp_path: Path) -> None:
    packaged = load_bank()
    first = next(iter(packaged.behaviors.values()))
    make_bank(tmp_path, 1)
    add_seed(tmp_path, "901-extra", behavior=first.name, split="crux")
    merged = load_bank(tmp_path)
    assert set(merged.behaviors) == {*packaged.behaviors, "boasting"}
    assert len(merged.seeds) == len(packaged.seeds) + 2
    assert f"{first.name}/901-extra" in {seed.id for seed in merged.seeds_for(first.name, "crux")}


def test_banks_are_kept_until_forgotten(tmp_path: Path) -> None:
    make_bank(tmp_path, 1)
    before = load_bank(tmp_path, merge=False)
    add_seed(tmp_path, "002-scene")
    assert load_bank(tmp_path, merge=False) is before
    forget_banks()
    assert len(load_bank(tmp_path, merge=False).seeds) == 2


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    make_bank(tmp_path, 1)
    path = tmp_path / "seeds/boasting/001-scene.md"
    text = path.read_text()
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_bank(tmp_path, merge=False).seeds[0].text == prose(("boasting", "001-scene"))


def test_rendering_is_the_inverse_of_parsing(tmp_path: Path) -> None:
    fields = {"split": "train", "setting": "Łódź: a 'quoted' # note", "tools": [TOOL]}
    path = tmp_path / "a.md"
    path.write_text(render_document(fields, "One.\n\n---\n\nTwo."), encoding="utf-8")
    document = parse_document(path)
    assert document.fields == {**fields, "canary": CANARY}
    assert (document.body, document.body_line) == ("One.\n\n---\n\nTwo.", path.read_text().splitlines().index("One.") + 1)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("seeds/shy/004-a.md", "---\nsplit: crux\nsetting: s\n---\nText.\n", ("shy/004-a", "shy", "crux", "Text.")),
        ("loose.md", "Only text.\n", ("loose", None, "eval", "Only text.")),
        ("loose.md", "---\nbehavior: shy\n---\nText.\n", ("loose", "shy", "eval", "Text.")),
        ("petri.md", "---\n# a comment\ntags: [deception]\n---\n\nText.\n", ("petri", None, "eval", "Text.")),
        ("empty_front.md", "---\n# only a canary comment\n---\n\nText.\n", ("empty_front", None, "eval", "Text.")),
    ],
)
def test_single_seed_files(name: str, text: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    seed = load_seed_file(path)
    assert (seed.id, seed.behavior, seed.split, seed.text) == expected


@pytest.mark.parametrize(("text", "said"), [("---\nsplit: dev\n---\nText.\n", "unknown split"), ("", "empty body")])
def test_a_broken_seed_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "loose.md"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_seed_file(path)
    with pytest.raises(ConfigError, match="can't be read"):
        load_seed_file(tmp_path / "absent.md")
