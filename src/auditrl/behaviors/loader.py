"""The bank: hidden behaviors and the scenario seeds that belong to them, read from Markdown files.

A bank folder holds `bank/<name>.md` (one behavior a file) and `seeds/<behavior>/NNN-slug.md`. The package carries one; a user's folder is
merged with it or used alone. A folder with any problem is refused as a whole, with every problem named.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from ..errors import ConfigError
from ..types import Behavior, BehaviorSplit, Seed, SeedSplit
from .frontmatter import Document, DocumentError, Problem, parse_document, shown
from .tools import tool_problems

PACKAGED = Path(__file__).parent
"""Root of the bank that comes with the package."""

SEED_SPLITS: Mapping[BehaviorSplit, tuple[SeedSplit, ...]] = {"train": ("train", "crux"), "eval": ("eval", "crux")}
"""Which seeds may stand under a behavior: a held-out behavior never has training seeds, a training behavior never has evaluation seeds."""

_MAX_SHOWN = 20
_BEHAVIOR_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_SEED_NAME = re.compile(r"\d{3,}-[a-z0-9][a-z0-9-]*\Z")
_SEED_KEYS = ("split", "setting", "tools", "canary")
_BEHAVIOR_KEYS = tuple(key for key in Behavior.model_fields if key not in ("name", "instruction"))


class BankError(ConfigError):
    """A bank that can't be used; `problems` holds every reason. Exit code 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        head = f"the bank has {len(problems)} problem{'s' if len(problems) != 1 else ''}; nothing was loaded"
        lines = [f"  {problem}" for problem in problems[:_MAX_SHOWN]]
        if len(problems) > _MAX_SHOWN:
            lines.append(f"  ... and {len(problems) - _MAX_SHOWN} more")
        super().__init__("\n".join([head, *lines]))


@dataclass(frozen=True, slots=True)
class Source:
    """Where a behavior or seed was read from."""

    path: Path
    line: int
    """File line on which the body starts."""
    canary: bool


@dataclass(frozen=True, slots=True)
class Bank:
    """Behaviors by name, and all their seeds ordered by id. Shared through a cache: don't change it in place."""

    behaviors: dict[str, Behavior]
    seeds: list[Seed]
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    """By behavior name and by seed id."""

    def behavior(self, name: str) -> Behavior:
        """The behavior of that name.

        Raises:
            ConfigError: No such behavior; the message names the nearest ones.
        """
        if name not in self.behaviors:
            raise ConfigError(f"unknown behavior `{name}`; {_nearest(name, self.behaviors)}")
        return self.behaviors[name]

    def seeds_for(self, behavior: str, split: SeedSplit | None = None) -> list[Seed]:
        """Seeds of one behavior, of one split or of all.

        Raises:
            ConfigError: No such behavior.
        """
        name = self.behavior(behavior).name
        return [seed for seed in self.seeds if seed.behavior == name and split in (None, seed.split)]

    def training(self) -> list[Behavior]:
        """Behaviors that may occur in training."""
        return [b for b in self.behaviors.values() if b.split == "train"]

    def held_out(self) -> list[Behavior]:
        """Behaviors that are kept for evaluation."""
        return [b for b in self.behaviors.values() if b.split == "eval"]


def load_bank(path: Path | str | None = None, *, merge: bool = True) -> Bank:
    """Load the packaged bank, or a user's folder merged with it or alone.

    Loaded banks are kept for the life of the process; `forget_banks` drops them after files were written.

    Args:
        path: A folder with `bank/*.md`, `seeds/<behavior>/*.md` or both. None: the packaged bank.
        merge: Add the folder to the packaged bank; otherwise use it alone.

    Raises:
        BankError: Any file of it can't be used. Every problem was collected first; nothing is half-loaded.
        ConfigError: The folder is missing or is no bank.
    """
    if path is None:
        return load_roots((PACKAGED,))
    root = Path(path).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{shown(root)}: no such folder; give a folder with bank/*.md, seeds/<behavior>/*.md or both")
    if not (root / "bank").is_dir() and not (root / "seeds").is_dir():
        raise ConfigError(f"{shown(root)}: neither bank/ nor seeds/ in it; put behaviors into bank/<name>.md, seeds into seeds/<behavior>/")
    return load_roots((PACKAGED, root) if merge and root != PACKAGED else (root,))


@lru_cache(maxsize=8)
def load_roots(roots: tuple[Path, ...]) -> Bank:
    """Load several bank folders as one; a seed may belong to a behavior of another folder.

    Raises:
        BankError: Any file can't be used, or an id stands twice.
    """
    reader = _Reader()
    for root in roots:
        reader.read_behaviors(root)
    for root in roots:
        reader.read_seeds(root)
    return reader.bank()


def forget_banks() -> None:
    """Drop loaded banks, so that the next `load_bank` reads the files again."""
    load_roots.cache_clear()


class _Reader:
    """Reads folders one after the other and collects what is wrong with them."""

    def __init__(self) -> None:
        self.behaviors: dict[str, Behavior] = {}
        self.broken: set[str] = set()
        self.seeds: dict[str, Seed] = {}
        self.sources: dict[str, Source] = {}
        self.problems: list[Problem] = []

    def read_behaviors(self, root: Path) -> None:
        folder = root / "bank"
        for path in _markdown_files(folder):
            if path.parent != folder:
                self.problems.append(Problem(path, 1, f"too deep; behaviors stand directly in {shown(folder)}"))
                continue
            name = path.stem
            self.broken.add(name)  # until it has been read, so that its seeds aren't reported as orphans
            if not _BEHAVIOR_NAME.match(name):
                mend = "rename the file to lower-case letters, digits and underscores"
                self.problems.append(Problem(path, 1, f"`{name}` is no behavior name; {mend}"))
            elif self._taken(name, path) is None and (document := self._parse(path)):
                behavior = self._behavior(document)
                if behavior is not None:
                    self.behaviors[name] = behavior
                    self.sources[name] = Source(path, document.body_line, bool(document.fields.get("canary")))
                    self.broken.discard(name)

    def read_seeds(self, root: Path) -> None:
        folder = root / "seeds"
        by_behavior: dict[str, list[Path]] = defaultdict(list)
        for path in _markdown_files(folder):
            if path.parent.parent != folder:
                self.problems.append(Problem(path, 1, f"misplaced; seeds stand in {shown(folder)}/<behavior>/NNN-slug.md"))
            else:
                by_behavior[path.parent.name].append(path)
        for name, paths in by_behavior.items():
            behavior = self.behaviors.get(name)
            if behavior is None and name not in self.broken:
                message = f"{len(paths)} seed file(s) for `{name}`, which is no behavior of the bank; {_nearest(name, self.behaviors)}"
                self.problems.append(Problem(paths[0], 1, f"{message}, or add bank/{name}.md"))
            for path in paths:
                self._read_seed(path, name, behavior)

    def _read_seed(self, path: Path, name: str, behavior: Behavior | None) -> None:
        seed_id = f"{name}/{path.stem}"
        if not _SEED_NAME.match(path.stem):
            self.problems.append(Problem(path, 1, "the file name must be NNN-slug.md (three digits, lower-case words); rename it"))
            return
        if self._taken(seed_id, path) is not None or not (document := self._parse(path)):
            return
        seed = self._seed(document, seed_id, name)
        if seed is None:
            return
        if behavior is not None and seed.split not in SEED_SPLITS[behavior.split]:
            allowed = " or ".join(f"`split: {split}`" for split in SEED_SPLITS[behavior.split])
            kind = "a training behavior" if behavior.split == "train" else "held out for evaluation"
            message = f"`split: {seed.split}`, but `{name}` is {kind}; use {allowed}, or move the file to another behavior"
            self.problems.append(Problem(path, document.line_of("split"), message))
            return
        self.seeds[seed_id] = seed
        self.sources[seed_id] = Source(path, document.body_line, bool(document.fields.get("canary")))

    def bank(self) -> Bank:
        if self.problems:
            raise BankError(self.problems)
        behaviors = {name: self.behaviors[name] for name in sorted(self.behaviors)}
        return Bank(behaviors, [self.seeds[key] for key in sorted(self.seeds)], self.sources)

    def _parse(self, path: Path) -> Document | None:
        try:
            return parse_document(path)
        except DocumentError as error:
            self.problems.append(error.problem)
            return None

    def _taken(self, key: str, path: Path) -> Source | None:
        other = self.sources.get(key)
        if other is not None:
            self.problems.append(Problem(path, 1, f"duplicate id `{key}` (also {shown(other.path)}); rename one, or load the folder alone"))
        return other

    def _behavior(self, document: Document) -> Behavior | None:
        values = {key: value for key, value in document.fields.items() if key != "canary"}
        # name and instruction come from the file's name and body, never from a key
        found = list(_unknown_keys(document, (*_BEHAVIOR_KEYS, "canary")))
        if not found:
            try:
                return Behavior.model_validate({**values, "name": document.path.stem, "instruction": document.body})
            except ValidationError as error:
                found = list(_explain(document, error, Behavior))
        self.problems.extend(found)
        return None

    def _seed(self, document: Document, seed_id: str, behavior: str) -> Seed | None:
        found = list(_unknown_keys(document, _SEED_KEYS))
        seed = None if found else _validated_seed(document, seed_id, behavior, found)
        self.problems.extend(found)
        return seed


def load_seed_file(path: Path | str) -> Seed:
    """Read one seed from any Markdown file: a bank's, Petri's, or plain text without front matter.

    The behavior is the folder's name for a file in `seeds/<behavior>/`, else the key `behavior`, else None. Without a key `split` the seed
    counts as `eval`, so that a loose file never enters training unnoticed. Keys that other tools keep there are left alone.

    Raises:
        ConfigError: The file can't be read or a key has a value that can't be used.
    """
    file = Path(path).expanduser().resolve()
    try:
        document = parse_document(file, optional=True)
    except DocumentError as error:
        raise ConfigError(str(error.problem)) from None
    problems: list[Problem] = []
    in_bank = file.parent.parent.name == "seeds"
    named = document.fields.get("behavior")
    behavior = file.parent.name if in_bank else named
    seed = _validated_seed(document, f"{file.parent.name}/{file.stem}" if in_bank else file.stem, behavior, problems, split="eval")
    if seed is None:
        raise ConfigError("\n".join(map(str, problems)))
    return seed


def seed_number(seed: Seed) -> int:
    """The NNN of a bank seed's id."""
    return int(seed.id.rsplit("/", 1)[-1].split("-", 1)[0])


def next_number(bank: Bank, behavior: str) -> int:
    """The number behind the highest one of a behavior's seeds; 1 if there are none."""
    return max((seed_number(seed) for seed in bank.seeds if seed.behavior == behavior), default=0) + 1


def _validated_seed(
    document: Document, seed_id: str, behavior: object, problems: list[Problem], split: SeedSplit | None = None
) -> Seed | None:
    values = {key: document.fields[key] for key in ("split", "setting", "tools") if document.fields.get(key) is not None}
    if split is not None:
        values.setdefault("split", split)
    try:
        seed = Seed.model_validate({**values, "id": seed_id, "behavior": behavior, "text": document.body})
    except ValidationError as error:
        problems.extend(_explain(document, error, Seed))
        return None
    broken = [Problem(document.path, document.line_of("tools"), message) for message in tool_problems(seed.tools)]
    problems.extend(broken)
    return None if broken else seed


def _markdown_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.md") if path.name != "README.md")


def _unknown_keys(document: Document, known: Sequence[str]) -> Iterator[Problem]:
    for key in document.fields:
        if key not in known:
            yield Problem(document.path, document.line_of(key), f"unknown key `{key}`; {_nearest(key, known)}, or remove it")


def _explain(document: Document, error: ValidationError, model: type[Behavior | Seed]) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        key = str(detail["loc"][0])
        value: Any = detail.get("input")
        match detail["type"]:
            case "missing":
                message = f"key `{key}` is missing; add a line `{key}: ...`{_choices(model, key)}"
            case "literal_error":
                message = f"unknown {key} `{str(value)[:40]}`{_choices(model, key)}"
            case "string_type":
                message = f"`{key}` must be text; put the value in quotes"
            case _:
                message = f"`{key}`: {detail['msg'].lower()}; correct the value"
        yield Problem(document.path, document.line_of(key), message)


def _choices(model: type[Behavior | Seed], key: str) -> str:
    options = get_args(model.model_fields[key].annotation)
    return f"; use one of {', '.join(map(str, options))}" if options and all(isinstance(o, str) for o in options) else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(f'`{option}`' for option in close)}?"
    return f"known: {', '.join(options[:40])}" if options else "the bank holds no behavior"
