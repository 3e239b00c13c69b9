"""The run directory: create, append, resume, list, digest.

    run.json             name, digest, versions, random seed, when it was made
    config.json          the resolved config
    metrics.jsonl        one row a step, append-only
    events.jsonl         what happened beside the steps: checkpoints, renewals, interruptions
    alarms.jsonl         the alarms of the metrics rows, if any went off
    logs/                one Inspect log a step
    steps/               audits, verdicts, rewards and training segments of each step; audits of each look of the alarms
    references.jsonl     cached reference audits (`auditrl gc` moves those that are over into references.old.jsonl.gz)
    checkpoints/         step-0010/ ...: policy and optimiser, written whole and renamed
    evaluation/          before.json, after.json
    report.html
    reader/              transcript reader: index.html and data/

A kill at any moment loses at most the step in flight: a row is appended after its step's files are whole, and a resumed run replays the
updates since the last checkpoint from the saved segments.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import platform
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from .config import RunConfig, changes_results, check_config, merged
from .errors import RunError
from .files import append_line, locked, write_whole

FORMAT = 1
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
PACKAGES = ("auditrl", "inspect-ai", "inspect-petri", "torch", "transformers", "peft", "numpy")


def package_versions() -> dict[str, str]:
    """Versions that a rerun needs; packages that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """An open run directory."""

    path: Path
    config: RunConfig
    info: dict[str, Any]

    @property
    def metrics_file(self) -> Path:
        """One JSON row a step."""
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """Folder of the Inspect logs."""
        return self.path / "logs"

    def step_file(self, step: int, kind: str) -> Path:
        """`steps/step-0012.<kind>`, counted from 1."""
        return self.path / "steps" / f"step-{step:04d}.{kind}"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint after `step` steps; step 0 is the start."""
        return self.path / "checkpoints" / f"step-{step:04d}"

    def checkpoints(self) -> list[int]:
        """Steps that have a whole checkpoint, ascending."""
        found = (self.path / "checkpoints").glob("step-[0-9]*")
        return sorted(int(folder.name[5:]) for folder in found if folder.is_dir() and folder.name[5:].isdigit())

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Append and sync one row."""
        append_line(self.metrics_file, json.dumps(row, allow_nan=False))

    def event(self, kind: str, **fields: Any) -> None:
        """Note something beside the steps."""
        append_line(self.path / "events.jsonl", json.dumps({"time": now(), "event": kind, **fields}))

    def metrics(self) -> list[dict[str, Any]]:
        """All whole rows."""
        return read_rows(self.metrics_file)[0]

    def write_step(self, step: int, kind: str, value: Any) -> None:
        """Write one step's record (`audits`, `segments`), compressed."""
        write_whole(self.step_file(step, f"{kind}.json.gz"), gzip.compress(json.dumps(value, allow_nan=False).encode(), 5, mtime=0))

    def read_step(self, step: int, kind: str) -> Any:
        """Read what `write_step` wrote. RunError names the file and the mend."""
        path = self.step_file(step, f"{kind}.json.gz")
        try:
            return json.loads(gzip.decompress(path.read_bytes()))
        except FileNotFoundError:
            raise RunError(
                f"{path}: missing; the step can't be replayed. Resume from an earlier checkpoint by deleting the later ones"
            ) from None
        except (OSError, EOFError, ValueError) as error:
            raise RunError(f"{path}: damaged ({error}); delete it and the metrics rows from this step on, then resume") from None


def now() -> str:
    """UTC time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_rows(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Rows of a JSON-lines file and the length in bytes of its whole part. A cut-off last line (a kill while writing) is dropped.

    Raises:
        RunError: A line before the last one that can't be read.
    """
    rows: list[dict[str, Any]] = []
    whole = 0
    for _, end, row in scan_rows(path):
        whole = end
        if row is not None:
            rows.append(row)
    return rows, whole


def scan_rows(path: Path) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """The lines that `read_rows` reads, one at a time: where each begins and ends in the file, and its row (None: a blank line)."""
    if not path.exists():
        return
    end = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                return  # no line end: the write was cut, even if it happens to parse
            begin, end = end, end + len(line)
            if not line.strip():
                yield begin, end, None
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                if b"\n" not in stream.read():
                    return
                raise RunError(f"{path}: line {number} can't be read ({error}); remove this line and those after it, then resume") from None
            yield begin, end, row


def create_run(root: Path, config: RunConfig) -> Run:
    """Make `<root>/<config.name>`. RunError if it exists or can't be written."""
    path = root / config.name
    _refuse_taken(path)
    info = {
        "format": FORMAT,
        "name": config.name,
        "digest": config.digest,
        "random_seed": config.random_seed,
        "created": now(),
        "versions": package_versions(),
    }
    try:
        # two processes may be at it at the same moment: the second finds the lock, or the first one's files
        with locked(path / ".lock") as mine:
            if not mine:
                raise RunError(f"{path}: another process is making this run; choose another --name")
            _refuse_taken(path)
            write_whole(path / "config.json", json.dumps(config.model_dump(mode="json"), indent=1))
            write_whole(path / "run.json", json.dumps({**info, "config": config.model_dump(mode="json")}, indent=1))
    except OSError as error:
        raise RunError(f"{path}: can't write the run directory ({error.strerror}); choose another folder with --runs DIR") from None
    return Run(path, config, info)


def _refuse_taken(path: Path) -> None:
    if (path / "run.json").exists():
        raise RunError(f"{path}: this run exists. Go on with it (`auditrl resume {path}`), or choose another --name")
    if path.is_dir() and any(p for p in path.iterdir() if p.name != ".lock"):
        raise RunError(f"{path}: the folder is not empty and holds no run; choose another --name or an empty folder")


def open_run(path: Path, overrides: Mapping[str, Any] | None = None) -> Run:
    """Open a run for reading or resuming.

    Raises:
        RunError: No run there, another format, or a config that differs from the one the run was made with (keys are named).
    """
    info = _read_json(path / "run.json", f"{path}: no run here (run.json is missing); `auditrl runs list` shows what there is")
    if info.get("format") != FORMAT:
        raise RunError(
            f"{path / 'run.json'}: format {info.get('format')!r}, this version reads {FORMAT}; use the auditrl version {info.get('versions', {}).get('auditrl')}"
        )
    made_with = info.pop("config", None)
    current = _read_json(path / "config.json", f"{path / 'config.json'}: missing; copy the key `config` of run.json back into it")
    config = check_config(merged(current, overrides or {}), str(path / "config.json"))
    wanted = config.model_dump(mode="json")
    # read again, so that keys which came with a later version have their defaults
    before = check_config(made_with or {}, f"{path / 'run.json'}: config").model_dump(mode="json")
    changed = sorted(key for key in _differences(before, wanted) if changes_results(key.split(" (was ")[0]))
    if changed:
        raise RunError(
            f"{path}: the config differs from the one this run was made with: {', '.join(changed)}. "
            "A resumed run must go on as it began: undo the change, or start a new run with another --name"
        )
    if overrides and wanted != current:
        # what a resume may change holds from now on; run.json keeps what the run was made with
        write_whole(path / "config.json", json.dumps(wanted, indent=1))
    return Run(path, config, info)


def config_differences(made_with: RunConfig, wanted: RunConfig) -> list[str]:
    """Keys that differ and change results, with both values; empty where a run of the one may go on as the other."""
    if made_with.digest == wanted.digest:
        return []
    found = _differences(made_with.model_dump(mode="json"), wanted.model_dump(mode="json"))
    return sorted(key for key in found if changes_results(key.split(" (was ")[0])) or ["reward.kind (the reward file itself has changed)"]


def _differences(a: Any, b: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            yield from _differences(a.get(key), b.get(key), f"{prefix}.{key}" if prefix else str(key))
    elif a != b:
        yield f"{prefix} (was {a!r}, is {b!r})"


def _read_json(path: Path, missing: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(missing) from None
    except NotADirectoryError:
        raise RunError(missing) from None
    except (ValueError, OSError) as error:
        raise RunError(f"{path}: can't be read ({error}); restore it from a copy") from None
    if not isinstance(value, dict):
        raise RunError(f"{path}: not a JSON object; restore it from a copy")
    return value


@contextmanager
def owned(run: Run) -> Generator[None]:
    """Only one process works on a run at a time."""
    with locked(run.path / ".lock") as mine:
        if not mine:
            raise RunError(f"{run.path}: another process is working on this run; wait for it, or stop it first")
        yield


@contextmanager
def writable(run: Run) -> Generator[None]:
    """Say plainly that the disk is full or gone, wherever it was noticed. RunError: The run resumes once there is space."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise RunError(
            f"{error.filename or run.path}: can't be written ({error.strerror}). Free space or mend the disk, then "
            f"`auditrl resume {run.path}`: everything up to the last finished step is saved"
        ) from error


def truncate_rows(path: Path, keep: int) -> None:
    """Keep the first `keep` rows of a JSON-lines file."""
    rows, _ = read_rows(path)
    if path.exists():
        write_whole(path, "".join(json.dumps(row) + "\n" for row in rows[:keep]))


def prune_checkpoints(run: Run, keep: int, also: set[int]) -> None:
    """Drop old checkpoints, except the last `keep` and those that are still referred to, and what kills left of others."""
    with suppress(OSError):
        for step in run.checkpoints()[:-keep]:
            if step not in also:
                discard(run.checkpoint(step))
        for folder in unfinished_checkpoints(run):
            shutil.rmtree(folder)


def unfinished_checkpoints(run: Run) -> list[Path]:
    """What a kill left of a checkpoint that was being written or removed. Only for the process that owns the run: nothing writes meanwhile."""
    return sorted(p for kind in ("part", "old") for p in (run.path / "checkpoints").glob(f".step-*.{kind}-*") if p.is_dir())


def discard(folder: Path) -> None:
    """Remove a folder so that a kill never leaves half of it under its name: half a checkpoint would pass for one."""
    gone = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def list_runs(root: Path) -> list[dict[str, Any]]:
    """What stands under a folder of runs: name, steps done, of how many, last reward, state."""
    found: list[dict[str, Any]] = []
    for file in sorted(root.glob("*/run.json"), key=os.path.getmtime):
        row: dict[str, Any] = {"name": file.parent.name, "path": str(file.parent)}
        try:
            run = open_run(file.parent)
            rows = run.metrics()
            row |= {
                "steps": len(rows),
                "of": run.config.train.steps,
                "created": run.info["created"],
                "reward": rows[-1]["reward"] if rows else None,
            }
            row["state"] = (
                "finished" if (run.path / "evaluation" / "after.json").exists() or len(rows) == run.config.train.steps else "unfinished"
            )
            if rows and any(alarm["action"] == "stop" for alarm in rows[-1].get("alarms") or []):
                row["state"] = "stopped by alarm"
        except RunError as error:
            row |= {"state": "unreadable", "problem": str(error)}
        found.append(row)
    return found
