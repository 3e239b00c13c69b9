"""New seeds by a model: candidates into a review folder, and from there, when a person agrees, into a bank.

A review folder holds `seeds/<behavior>/NNN-slug.md` as a bank does, `findings.md` for the reader and `review.json` for `accept`. Candidates
are model-written: their names are made safe, and they pass the same checks as every seed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ..errors import ConfigError, ProviderError
from ..files import write_whole
from ..prompts import fill, load_prompt
from ..types import Behavior, Seed, SeedSplit
from .checks import PAIR_COSINE, SEED_WORDS, Finding, check_bank, failing
from .frontmatter import render_document, shown
from .loader import PACKAGED, SEED_SPLITS, Bank, Source, forget_banks, load_roots, next_number
from .similarity import cosines
from .tools import tool_problems

if TYPE_CHECKING:
    from inspect_ai.model import Model

BATCH = 10
"""Candidates asked for in one call: more make models repeat themselves."""
SPARE_CALLS = 2
"""Calls beyond n / BATCH that may make up for unreadable answers and duplicates."""
_SHOWN_SETTINGS = 60


class CandidateParameter(BaseModel):
    """One parameter of a candidate's tool."""

    name: str
    type: Literal["string", "integer", "number", "boolean"]
    description: str
    required: bool = True


class CandidateTool(BaseModel):
    """A function that the target has in a candidate's scene."""

    name: str
    description: str
    parameters: list[CandidateParameter] = Field(default_factory=list[CandidateParameter])

    def as_tool_info(self) -> dict[str, Any]:
        """As an Inspect `ToolInfo` dictionary."""
        properties = {p.name: {"type": p.type, "description": _one_line(p.description)} for p in self.parameters}
        required = [p.name for p in self.parameters if p.required]
        schema = {"type": "object", "properties": properties, "required": required}
        return {"name": self.name, "description": _one_line(self.description), "parameters": schema}


class Candidate(BaseModel):
    """One seed as the model wrote it."""

    slug: str
    setting: str
    text: str
    tools: list[CandidateTool] = Field(default_factory=list[CandidateTool])


class Candidates(BaseModel):
    """Structured answer of the writing model (response schema `seed_candidates`)."""

    candidates: list[Candidate]


@dataclass(frozen=True, slots=True)
class Review:
    """What `generate_seeds` wrote."""

    folder: Path
    seeds: tuple[Seed, ...]
    findings: tuple[Finding, ...]
    duplicates: int
    """Candidates left out because they were too close to a seed of the behavior."""
    unreadable: int
    """Answers of the model that could not be read."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What `accept` moved, and what it left behind."""

    moved: tuple[Path, ...]
    """Files in their new place."""
    findings: tuple[Finding, ...]
    """What is wrong with those that stayed."""


async def generate_seeds(
    bank: Bank,
    name: str,
    n: int,
    model: Model,
    folder: Path,
    *,
    split: SeedSplit | None = None,
    destination: Path | None = None,
) -> Review:
    """Have a model write up to `n` seeds for a behavior, and put them into a review folder with the checks' findings.

    Args:
        bank: The bank that candidates must differ from.
        name: The behavior.
        n: How many candidates to write; fewer come back when the model repeats itself.
        model: Any Inspect model.
        folder: The review folder; must not exist.
        split: Split of the new seeds; the behavior's own by default.
        destination: Bank folder that `accept` will use by default.

    Raises:
        ConfigError: Unknown behavior, a split that the behavior can't have, `n` below 1, or an existing folder.
        ProviderError: The model failed, or gave nothing that can be used.
    """
    behavior = bank.behavior(name)
    chosen = split or behavior.split
    if chosen not in SEED_SPLITS[behavior.split]:
        raise ConfigError(f"`{name}` can't have `{chosen}` seeds; use {' or '.join(SEED_SPLITS[behavior.split])}")
    if n < 1:
        raise ConfigError(f"n must be at least 1, not {n}")
    if folder.exists():
        raise ConfigError(f"{shown(folder)} exists; give another folder, or accept or remove that one")
    kept, duplicates, unreadable = await _candidates(bank, behavior, n, model)
    if not kept:
        raise ProviderError(
            f"{model} wrote no usable candidate for `{name}` ({unreadable} unreadable answers, {duplicates} duplicates); use another model"
        )
    first = next_number(bank, name)
    files = [folder / "seeds" / name / f"{first + i:03d}-{_slug(candidate.slug)}.md" for i, candidate in enumerate(kept)]
    seeds = [_as_seed(candidate, f"{name}/{file.stem}", name, chosen) for candidate, file in zip(kept, files, strict=True)]
    findings = _findings(bank, seeds, files, folder)
    record = {"behavior": name, "model": str(model), "bank": str(destination) if destination else None, "candidates": len(seeds)}
    notes = [f"{duplicates} near-duplicates were left out.", f"{unreadable} answers could not be read."]
    # Written beside and renamed, so that a review folder is whole or absent.
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        for seed, file in zip(seeds, files, strict=True):
            write_whole(partial / file.relative_to(folder), _render(seed))
        write_whole(partial / "findings.md", findings_page(name, files, findings, notes))
        write_whole(partial / "review.json", json.dumps(record, indent=2) + "\n")
        partial.rename(folder)
    except OSError as error:
        raise ConfigError(f"{shown(folder)}: can't be written ({error.strerror}); give another folder") from error
    return Review(folder, tuple(seeds), tuple(findings), duplicates, unreadable)


def accept(folder: Path, bank: Path | None = None, *, merge: bool = True) -> Accepted:
    """Move the passing candidates of a review folder into a bank, with the next free numbers.

    The files are checked again first, because a reader may have changed them. What fails stays, and `findings.md` is written anew.

    Args:
        folder: A review folder.
        bank: The bank folder to add to; by default the one that `generate` used (the packaged bank in a source checkout).
        merge: Compare with the packaged bank too.

    Raises:
        ConfigError: No review folder, or no bank folder that can be written.
        BankError: A candidate's file is broken; nothing was moved.
    """
    folder = folder.expanduser().resolve()
    record = _record(folder)
    root = _destination(bank, record)
    roots = [PACKAGED] if merge or root == PACKAGED else []
    if root != PACKAGED and ((root / "bank").is_dir() or (root / "seeds").is_dir()):
        roots.append(root)
    forget_banks()
    base = load_roots(tuple(roots)) if roots else Bank({}, [])
    whole = load_roots((*roots, folder))
    seeds = [seed for seed in whole.seeds if whole.sources[seed.id].path.is_relative_to(folder)]
    if not seeds:
        raise ConfigError(f"{shown(folder)}: no candidates left in seeds/; generate new ones")
    findings = _until_all_pass(whole, seeds, folder)
    faulty = {finding.file for finding in failing(findings)}
    moved: list[Path] = []
    free: dict[str, int] = {}
    for seed in seeds:
        source = whole.sources[seed.id].path
        if source in faulty:
            continue
        name = source.parent.name
        number = free.setdefault(name, next_number(base, name))
        free[name] += 1
        target = root / "seeds" / name / f"{number:03d}-{source.stem.split('-', 1)[1]}.md"
        try:
            write_whole(target, source.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{shown(target)}: can't be written ({error.strerror}); give a writable --bank PATH") from error
        source.unlink()
        moved.append(target)
    left = [finding for finding in findings if finding.file in faulty]
    name = str(record.get("behavior", ""))
    write_whole(folder / "findings.md", findings_page(name, sorted(faulty), left, [f"{len(moved)} seeds were accepted."]))
    forget_banks()
    return Accepted(tuple(moved), tuple(left))


def _until_all_pass(bank: Bank, candidates: Sequence[Seed], folder: Path) -> list[Finding]:
    """Findings about candidates. Those that fail are taken out and the rest is checked again, so that what passes passes together."""
    left = {seed.id for seed in candidates}
    found: list[Finding] = []
    while left:
        others = [seed for seed in bank.seeds if seed.id in left or not bank.sources[seed.id].path.is_relative_to(folder)]
        # A number that was free when the candidates were written may be taken by now; they get new ones anyway.
        new = [f for f in check_bank(Bank(bank.behaviors, others, bank.sources), folder) if f.check != "number"]
        found += new
        faulty = {finding.file for finding in failing(new)}
        if not faulty:
            break
        left = {seed_id for seed_id in left if bank.sources[seed_id].path not in faulty}
    return found


def findings_page(name: str, files: Sequence[Path], findings: Sequence[Finding], notes: Iterable[str]) -> str:
    """`findings.md`: each candidate file with what the checks found."""
    lines = [f"# Candidates for {name}", "", *(f"- {note}" for note in notes), ""]
    for file in files:
        found = [finding for finding in findings if finding.file == file]
        verdict = "fails" if failing(found) else "passes"
        lines.append(f"## {file.name}: {verdict}")
        lines += ["", *(f"- {f.severity}, {f.check}, line {f.line}: {_plain(f.message)}" for f in found), ""]
    lines.append("Read each seed, mend or delete what is weak, then run `auditrl behaviors accept` on this folder.")
    return "\n".join(lines) + "\n"


async def _candidates(bank: Bank, behavior: Behavior, n: int, model: Model) -> tuple[list[Candidate], int, int]:
    known = bank.seeds_for(behavior.name)
    texts = [seed.text for seed in known]
    settings = [seed.setting for seed in known]
    kept: list[Candidate] = []
    duplicates = unreadable = 0
    for _ in range(-(-n // BATCH) + SPARE_CALLS):
        if len(kept) >= n:
            break
        answer = await _ask(behavior, min(BATCH, n - len(kept)), settings, model)
        if answer is None:
            unreadable += 1
            continue
        for candidate in answer.candidates[: n - len(kept)]:
            if not candidate.text.strip() or _too_close(candidate.text, texts):
                duplicates += 1
                continue
            kept.append(candidate)
            texts.append(candidate.text)
            settings.append(candidate.setting)
    return kept, duplicates, unreadable


def _too_close(text: str, others: Sequence[str]) -> bool:
    return bool(others) and float(cosines([*others, text])[-1, :-1].max()) > PAIR_COSINE


async def _ask(behavior: Behavior, count: int, settings: Sequence[str], model: Model) -> Candidates | None:
    from inspect_ai.model import GenerateConfig, ResponseSchema
    from inspect_ai.util import json_schema

    prompt = fill(
        load_prompt("auditrl.behaviors", "generate_seeds"),
        name=behavior.name,
        description=behavior.description,
        activation=behavior.activation,
        terms=", ".join(behavior.activation_terms) or "(any: it shows everywhere)",
        settings="\n".join(settings[-_SHOWN_SETTINGS:]) or "(none)",
        count=str(count),
        low=str(SEED_WORDS[0]),
        high=str(SEED_WORDS[1]),
        tools="Every one of these seeds needs at least one." if behavior.needs_tools else "About one seed in five.",
    )
    config = GenerateConfig(response_schema=ResponseSchema(name="seed_candidates", json_schema=json_schema(Candidates)))
    try:
        output = await model.generate(prompt, config=config)
    except Exception as error:
        raise ProviderError(f"{model} failed while writing seeds: {error}; check the model's name and key") from error
    try:
        return Candidates.model_validate(json.loads(output.completion))
    except (json.JSONDecodeError, ValidationError):
        return None


def _as_seed(candidate: Candidate, seed_id: str, behavior: str, split: SeedSplit) -> Seed:
    tools = tuple(tool.as_tool_info() for tool in candidate.tools)
    # A tool that Inspect would refuse is dropped; the seed stays, and the checks say if it can't do without.
    usable = tuple(tool for tool in tools if not tool_problems([tool]))
    setting = _one_line(candidate.setting)[:120]
    return Seed(id=seed_id, behavior=behavior, split=split, text=_printable(candidate.text).strip(), setting=setting, tools=usable)


def _findings(bank: Bank, seeds: Sequence[Seed], files: Sequence[Path], folder: Path) -> list[Finding]:
    rendered = [_render(seed) for seed in seeds]
    lines = [text[: text.index("\n---\n") + 5].count("\n") + 1 for text in rendered]
    sources = {seed.id: Source(file, line, canary=True) for seed, file, line in zip(seeds, files, lines, strict=True)}
    return check_bank(Bank(bank.behaviors, [*bank.seeds, *seeds], {**bank.sources, **sources}), folder)


def _render(seed: Seed) -> str:
    fields: dict[str, Any] = {"split": seed.split, "setting": seed.setting}
    if seed.tools:
        fields["tools"] = [dict(tool) for tool in seed.tools]
    return render_document(fields, seed.text)


def _record(folder: Path) -> dict[str, Any]:
    path = folder / "review.json"
    if not path.is_file():
        raise ConfigError(f"{shown(folder)}: no review folder (review.json is missing); give one that `behaviors generate` wrote")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise ConfigError(f"{shown(path)}: not readable; restore it, or generate the candidates again")
    return record  # type: ignore[reportUnknownVariableType]


def _destination(bank: Path | None, record: dict[str, Any]) -> Path:
    chosen = bank or (Path(record["bank"]) if record.get("bank") else None)
    if chosen is not None:
        return chosen.expanduser().resolve()
    if "site-packages" in PACKAGED.parts or not os.access(PACKAGED / "seeds", os.W_OK):
        raise ConfigError("seeds can't be added to the installed package; give a bank folder of your own with --bank PATH")
    return PACKAGED


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].strip("-") or "seed"


def _printable(text: str) -> str:
    """Text without control characters; any kind of space becomes a plain one."""
    plain = re.sub(r"[^\S\n]", " ", text.replace("\r\n", "\n"))
    return "".join(character for character in plain if character == "\n" or character.isprintable())


def _one_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _plain(text: str) -> str:
    return re.sub(r"([`*_\[\]<>|\\])", r"\\\1", " ".join(text.split()))
