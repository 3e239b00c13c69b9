"""What a run directory can do without, found and removed (`auditrl gc`).

Report, transcript reader and resume find everything that they read; nothing they show or compute changes by a digit:

    kept                                              given up
    the newest checkpoint, the start (`RUN@0`), and   other checkpoints, and what kills left of unfinished ones
    the policy behind the current references
    segments of updates behind the newest checkpoint  segments of earlier updates: no resume replays them
    references of the current snapshot                references of earlier ones: moved into a compressed file, which the reader reads
    audits, verdicts and looks of every step          nothing
    Inspect logs                                      all of them, only if asked for

A kill leaves a valid run: files are replaced whole, folders are renamed before they are emptied, and the next call finishes the work.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import RunError
from ..files import write_whole
from ..runs import Run, discard, owned, scan_rows, unfinished_checkpoints
from .references import ARCHIVE, FILE, References, key_of, read_archive

Kind = Literal["checkpoints", "unfinished checkpoints", "segments", "references", "logs"]
_SEGMENTS = re.compile(r"step-(\d+)\.segments\.json\.gz")


@dataclass(frozen=True, slots=True)
class Waste:
    """Something that can go: a file, a folder, or lines of one (`count` of them). `size` is in bytes, as the file system counts a file's length."""

    kind: Kind
    path: Path
    size: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Freed:
    """What was found in one run, or would be: everything that goes, and what is left (bytes)."""

    waste: tuple[Waste, ...]
    left: int
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of everything that goes."""
        return sum(item.size for item in self.waste)

    def kinds(self) -> dict[Kind, tuple[int, int]]:
        """Number and bytes by kind, of the kinds that were found."""
        found: dict[Kind, tuple[int, int]] = {}
        for item in self.waste:
            count, size = found.get(item.kind, (0, 0))
            found[item.kind] = count + item.count, size + item.size
        return found


def collect(run: Run, *, logs: bool = False, dry_run: bool = False) -> Freed:
    """Remove what the run can do without.

    Args:
        logs: Inspect logs too: `inspect view` has nothing to open then.
        dry_run: Only say what would go.

    Raises:
        RunError: Another process is working on the run (nothing is touched), a file is damaged, or something can't be removed.
    """
    with owned(run):
        before = size_of(run.path)
        waste, notes = find_waste(run, logs=logs)
        if not dry_run:
            for item in waste:
                try:
                    _remove(run, item)
                except OSError as error:
                    raise RunError(
                        f"{item.path}: can't be removed ({error.strerror}); mend its permissions, then run the same command again"
                    ) from None
        freed = Freed(waste, before - sum(item.size for item in waste), notes)
        if waste and not dry_run:
            run.event("gc", freed={kind: {"count": count, "bytes": size} for kind, (count, size) in freed.kinds().items()})
        return freed


def find_waste(run: Run, *, logs: bool = False) -> tuple[tuple[Waste, ...], tuple[str, ...]]:
    """What can go, and what is kept although it could have gone, with the cause. For the process that owns the run."""
    notes: list[str] = []
    found = [*_old_checkpoints(run, notes), *(Waste("unfinished checkpoints", p, size_of(p)) for p in unfinished_checkpoints(run))]
    found += _old_references(run)
    if logs:
        found += [Waste("logs", p, p.stat().st_size) for p in sorted(run.path.rglob("logs/**/*.eval")) if not p.is_symlink()]
    return tuple(found), tuple(notes)


# ---------------------------------------------------------------- checkpoints and segments


def _old_checkpoints(run: Run, notes: list[str]) -> Iterator[Waste]:
    """Checkpoints that no resume starts from, and segments that none replays. A newest checkpoint that is damaged gives up nothing."""
    done = len(run.metrics())
    known = [step for step in run.checkpoints() if step <= done]
    if not known:
        return
    # a run whose audits run ahead may have to replay its last update, so that a checkpoint after it is no start
    behind = [step for step in known if step + run.config.train.off_policy_steps <= done]
    start, newest = (behind or known)[-1], known[-1]
    if problem := damage(run.checkpoint(start)):
        notes.append(
            f"{run.checkpoint(start)}: {problem}; earlier checkpoints and their segments are kept, so that a resume can start there"
        )
        return
    references = References(run.path / FILE, run.config.reward.renewal_steps)
    needed = {0, start, newest, references.snapshot_step(start), references.snapshot_step(newest)}
    for step in known:
        if step not in needed and not run.checkpoint(step).is_symlink():
            yield Waste("checkpoints", run.checkpoint(step), size_of(run.checkpoint(step)))
    for path in sorted((run.path / "steps").glob("step-*.segments.json.gz")):
        match = _SEGMENTS.fullmatch(path.name)
        if match and int(match[1]) <= start:
            yield Waste("segments", path, path.stat().st_size)


def damage(checkpoint: Path) -> str:
    """What is wrong with a checkpoint by its own list of files; empty for a whole one. Needs no torch."""
    try:
        manifest: Any = json.loads((checkpoint / "engine.json").read_text(encoding="utf-8"))
        files: dict[str, str] = manifest["files"]
        for name, digest in files.items():
            with (checkpoint / name).open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                    return f"{name} is truncated or was changed"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"can't be checked ({error})"
    return ""


# ---------------------------------------------------------------- references


def _old_references(run: Run) -> Iterator[Waste]:
    old, current = _split_references(run)
    if old:
        archive = run.path / ARCHIVE
        before = archive.stat().st_size if archive.exists() else 0
        size = (run.path / FILE).stat().st_size - len(current) - (len(_archived(run, old)) - before)
        yield Waste("references", run.path / FILE, size, len(old))


def _split_references(run: Run) -> tuple[dict[tuple[int, str], bytes], bytes]:
    """Lines of snapshots that are over, by key, and the lines that the next steps can still ask for."""
    file = run.path / FILE
    if not file.exists():
        return {}, b""
    steps = run.config.train.steps
    done = len(run.metrics())
    needed = References(file, run.config.reward.renewal_steps).snapshot_step(done) if done < steps else steps
    content = file.read_bytes()
    old: dict[tuple[int, str], bytes] = {}
    current: list[bytes] = []
    for begin, end, row in scan_rows(file):
        if row is None:
            continue
        if key_of(row)[0] < needed:
            old[key_of(row)] = content[begin:end]
        else:
            current.append(content[begin:end])
    return old, b"".join(current)


def _archived(run: Run, old: dict[tuple[int, str], bytes]) -> bytes:
    """The archive with these lines behind those it has, each once."""
    path = run.path / ARCHIVE
    known = {key_of(row) for row in read_archive(path)}
    fresh = b"".join(line for key, line in old.items() if key not in known)
    before = path.read_bytes() if path.exists() else b""
    return before + gzip.compress(fresh, 9, mtime=0) if fresh else before


# ---------------------------------------------------------------- removing


def _remove(run: Run, item: Waste) -> None:
    match item.kind:
        case "checkpoints":
            discard(item.path)
        case "unfinished checkpoints":
            shutil.rmtree(item.path)
        case "references":
            old, current = _split_references(run)
            write_whole(run.path / ARCHIVE, _archived(run, old))
            write_whole(item.path, current)
        case "segments" | "logs":
            item.path.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; what links lead to is not counted."""
    return sum(os.lstat(Path(place) / name).st_size for place, _, names in os.walk(folder) for name in names)
