"""Candidates by a model (Inspect's mock model), the review folder, and accepting from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bank_files import add_behavior, add_seed, make_bank, prose

from auditrl.behaviors.checks import check_bank
from auditrl.behaviors.generate import BATCH, SPARE_CALLS, Review, accept, generate_seeds
from auditrl.behaviors.loader import forget_banks, load_bank, load_roots
from auditrl.errors import ConfigError, ProviderError


def _candidate(key: str, **changes: Any) -> dict[str, Any]:
    return {"slug": f"scene {key}", "setting": f"new setting {key}", "text": prose(key)} | changes


def _model(answers: Sequence[object], prompts: list[str] | None = None) -> Any:
    """A model that gives these answers in turn (objects as JSON), and then none."""
    from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, ModelUsage, get_model
    from inspect_ai.tool import ToolChoice, ToolInfo

    rest = iter(answers)

    def reply(messages: list[ChatMessage], tools: list[ToolInfo], choice: ToolChoice, config: GenerateConfig) -> ModelOutput:
        assert config.response_schema is not None
        assert config.response_schema.name == "seed_candidates"
        if prompts is not None:
            prompts.append(messages[-1].text)
        answer = next(rest, {"candidates": []})
        output = ModelOutput.from_content("mockllm", answer if isinstance(answer, str) else json.dumps(answer))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    return get_model("mockllm/model", custom_outputs=reply, memoize=False)


def _generate(bank: Path, folder: Path, answers: Sequence[object], n: int = 3, prompts: list[str] | None = None, **options: Any) -> Review:
    loaded = load_bank(bank, merge=False)
    return asyncio.run(generate_seeds(loaded, "boasting", n, _model(answers, prompts), folder, destination=bank, **options))


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return make_bank(tmp_path / "mine")


@pytest.fixture
def review(tmp_path: Path) -> Path:
    return tmp_path / "review"


def test_candidates_are_written_checked_and_accepted(bank: Path, review: Path) -> None:
    answer = {"candidates": [_candidate("a"), _candidate("b", text=prose("b", 40)), _candidate("c")]}
    made = _generate(bank, review, [answer])
    assert [seed.id for seed in made.seeds] == ["boasting/007-scene-a", "boasting/008-scene-b", "boasting/009-scene-c"]
    assert [(f.check, f.file.name) for f in made.findings] == [("length", "008-scene-b.md")]
    page = (review / "findings.md").read_text()
    assert "## 007-scene-a.md: passes" in page
    assert "## 008-scene-b.md: fails" in page
    assert "seed of 40 words (60-120 wanted)" in page
    assert len(load_bank(bank, merge=False).seeds) == 6

    accepted = accept(review, merge=False)
    assert [path.relative_to(bank).as_posix() for path in accepted.moved] == [
        "seeds/boasting/007-scene-a.md",
        "seeds/boasting/008-scene-c.md",
    ]
    assert [path.name for path in (review / "seeds/boasting").iterdir()] == ["008-scene-b.md"]
    assert "2 seeds were accepted" in (review / "findings.md").read_text()
    grown = load_bank(bank, merge=False)
    assert len(grown.seeds) == 8
    assert check_bank(grown) == []

    # mended by the reader, the rest follows under the next free number
    path = review / "seeds/boasting/008-scene-b.md"
    path.write_text(path.read_text() + prose("more", 30))
    assert [p.name for p in accept(review, merge=False).moved] == ["009-scene-b.md"]
    with pytest.raises(ConfigError, match="no candidates left"):
        accept(review, merge=False)


def test_the_prompt_holds_what_the_writer_needs_and_not_the_instruction(bank: Path, review: Path) -> None:
    prompts: list[str] = []
    _generate(bank, review, [{"candidates": [_candidate("a")]}, {"candidates": [_candidate("b")]}], n=2, prompts=prompts)
    behavior = load_bank(bank, merge=False).behavior("boasting")
    for part in (behavior.description, behavior.activation, "tide, tidal", "<count>2</count>", "60 to 120 words"):
        assert part in prompts[0]
    assert behavior.instruction not in prompts[0]
    assert "made-up setting of boasting 006-scene" in prompts[0]
    assert "<count>1</count>" in prompts[1]
    assert "new setting a" in prompts[1]


def test_near_duplicates_and_unreadable_answers_are_left_out_and_counted(bank: Path, review: Path) -> None:
    copy = _candidate("x", text=prose(("boasting", "001-scene")))
    answers = ["no JSON", {"candidates": [copy, _candidate("a"), _candidate("a2", text=prose("a"))]}, {"candidates": [_candidate("b")]}]
    made = _generate(bank, review, answers)
    assert [seed.id for seed in made.seeds] == ["boasting/007-scene-a", "boasting/008-scene-b"]
    assert (made.duplicates, made.unreadable) == (2, 1)
    page = (review / "findings.md").read_text()
    assert "2 near-duplicates were left out." in page
    assert "1 answers could not be read." in page


def test_more_than_asked_is_cut_and_calls_are_bounded(bank: Path, review: Path, tmp_path: Path) -> None:
    made = _generate(bank, review, [{"candidates": [_candidate(str(i)) for i in range(5)]}], n=2)
    assert len(made.seeds) == 2
    prompts: list[str] = []
    _generate(bank, tmp_path / "other", [{"candidates": [_candidate("z")]}], n=BATCH + 1, prompts=prompts)
    assert len(prompts) == 2 + SPARE_CALLS


def test_what_a_model_writes_is_made_safe(bank: Path, review: Path) -> None:
    tool = {"name": "read_gauge", "description": "Reads\nit.", "parameters": [{"name": "h", "type": "string", "description": "Where."}]}
    bad = {"name": "not a name!", "description": "x", "parameters": []}
    evil = _candidate(
        "a",
        slug="../../etc/Pass WD*",
        setting="line\nbreak: [x](y) \x1b[2J # yes",
        text=f"---\nsplit: eval\n---\n{prose('a')}\u202e\x07",
        tools=[tool, bad],
    )
    made = _generate(bank, review, [{"candidates": [evil, _candidate("b", slug="///")]}], n=2)
    assert sorted(path.name for path in (review / "seeds/boasting").iterdir()) == ["007-etc-pass-wd.md", "008-seed.md"]
    forget_banks()
    seed = load_roots((bank, review)).seeds_for("boasting")[-2]
    assert (seed.split, seed.setting) == ("train", "line break: [x](y) [2J # yes")
    assert seed.text == f"---\nsplit: eval\n---\n{prose('a')}"
    assert seed == made.seeds[0]
    (kept,) = seed.tools
    assert kept["description"] == "Reads it."
    assert kept["parameters"] == {"type": "object", "properties": {"h": {"type": "string", "description": "Where."}}, "required": ["h"]}


def test_findings_cannot_forge_markdown(bank: Path, review: Path) -> None:
    text = prose("a", 64) + " Boasting <b>x</b>. Watch whether the target boasts [of](its) `lighthouses`."
    _generate(bank, review, [{"candidates": [_candidate("a", text=text.replace("Boasting ", ""))]}], n=1)
    page = (review / "findings.md").read_text()
    assert "\\[of\\](its) \\`lighthouses\\`" in page


def test_held_out_behaviors_get_their_own_split(tmp_path: Path, review: Path) -> None:
    root = tmp_path / "mine"
    add_behavior(root, split="eval")
    assert {s.split for s in _generate(root, review, [{"candidates": [_candidate("a")]}], n=1).seeds} == {"eval"}
    other = tmp_path / "other"
    assert {s.split for s in _generate(root, other, [{"candidates": [_candidate("a")]}], n=1, split="crux").seeds} == {"crux"}
    with pytest.raises(ConfigError, match="can't have `train` seeds; use eval or crux"):
        _generate(root, tmp_path / "third", [], split="train")


@pytest.mark.parametrize(("n", "occupied", "said"), [(0, False, "n must be at least 1"), (1, True, "exists; give another folder")])
def test_bad_requests(n: int, occupied: bool, said: str, bank: Path, review: Path) -> None:
    if occupied:
        review.mkdir()
    with pytest.raises(ConfigError, match=said):
        _generate(bank, review, [], n=n)


@pytest.mark.parametrize("answers", [["not json"] * 9, [{"candidates": [{"slug": "x"}]}] * 9, [{"candidates": []}] * 9])
def test_a_model_without_usable_candidates(answers: list[object], bank: Path, review: Path) -> None:
    with pytest.raises(ProviderError, match="no usable candidate") as caught:
        _generate(bank, review, answers)
    assert caught.value.exit_code == 4
    assert not review.exists()


def test_a_model_that_fails(bank: Path, review: Path) -> None:
    class Broken:
        async def generate(self, *args: object, **kwargs: object) -> None:
            raise RuntimeError("401 unauthorized")

        def __str__(self) -> str:
            return "openai/none"

    loaded: Any = Broken()
    with pytest.raises(ProviderError, match="openai/none failed while writing seeds: 401 unauthorized"):
        asyncio.run(generate_seeds(load_bank(bank, merge=False), "boasting", 1, loaded, review))
    assert not review.exists()


def test_what_is_accepted_passes_together(bank: Path, review: Path) -> None:
    run = "then the pilot rings a small brass bell twice"
    made = _generate(bank, review, [{"candidates": [_candidate(str(i), text=f"{prose(i, 62)} {run}.") for i in range(6)]}], n=6)
    assert len({f.file for f in made.findings if f.severity == "fail"}) == 4
    assert len(accept(review, merge=False).moved) == 2
    assert check_bank(load_bank(bank, merge=False)) == []


def test_accepting_into_a_new_folder(bank: Path, review: Path, tmp_path: Path) -> None:
    _generate(bank, review, [{"candidates": [_candidate("a")]}], n=1)
    # alone, the seed's behavior is nowhere: refused as a whole
    with pytest.raises(ConfigError, match="which is no behavior of the bank"):
        accept(review, tmp_path / "fresh", merge=False)
    assert (review / "seeds/boasting/007-scene-a.md").exists()
    fresh = tmp_path / "fresh"
    add_behavior(fresh)
    forget_banks()
    assert [path.relative_to(fresh).as_posix() for path in accept(review, fresh, merge=False).moved] == ["seeds/boasting/001-scene-a.md"]


@pytest.mark.parametrize(
    ("record", "said"), [(None, "review.json is missing"), ("{", "not readable; restore it"), ("[]", "not readable; restore it")]
)
def test_what_is_no_review_folder(record: str | None, said: str, tmp_path: Path) -> None:
    if record is not None:
        (tmp_path / "review.json").write_text(record)
    with pytest.raises(ConfigError, match=said):
        accept(tmp_path)


def test_a_candidate_broken_by_hand_moves_nothing(bank: Path, review: Path) -> None:
    _generate(bank, review, [{"candidates": [_candidate("a"), _candidate("b")]}], n=2)
    (review / "seeds/boasting/008-scene-b.md").write_text("no front matter")
    with pytest.raises(ConfigError, match=r"008-scene-b\.md:1: no front matter"):
        accept(review, merge=False)
    assert (review / "seeds/boasting/007-scene-a.md").exists()
    assert len(list((bank / "seeds/boasting").iterdir())) == 6


def test_a_candidate_like_a_seed_of_another_behavior_stays(bank: Path, review: Path) -> None:
    add_behavior(bank, "humming")
    add_seed(bank, "001-scene", prose("taken"), behavior="humming")
    made = _generate(bank, review, [{"candidates": [_candidate("a", text=prose("taken")), _candidate("b")]}], n=2)
    assert [f.check for f in made.findings] == ["duplicates"]
    accepted = accept(review, merge=False)
    assert [path.name for path in accepted.moved] == ["007-scene-b.md"]
    assert "too close to humming/001-scene" in accepted.findings[0].message


def test_the_installed_package_is_never_written_to(bank: Path, review: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_bank(bank, merge=False)
    asyncio.run(generate_seeds(loaded, "boasting", 1, _model([{"candidates": [_candidate("a")]}]), review))
    monkeypatch.setattr("auditrl.behaviors.generate.PACKAGED", Path("/usr/lib/site-packages/auditrl/behaviors"))
    with pytest.raises(ConfigError, match="give a bank folder of your own with --bank PATH"):
        accept(review)
