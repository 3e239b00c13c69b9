"""What an evaluation keeps on disk while it runs, so that nothing is paid for twice.

    evaluation.json         what was evaluated against what; a continued evaluation must agree with it
    <suite>.audits.jsonl    one audit a line, appended as it ends; rewritten with the verdicts when the suite is finished
    <suite>.verdicts.jsonl  one verdict a line, appended as it comes; gone when the suite is finished
    <suite>.json            scores of a finished suite
    realism.pairs.json      which real conversation each realism seed is compared with
    scorecard.json          all suites
    logs/                   Inspect logs

A kill at any moment loses the audits and judgements in flight.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ..errors import RunError
from ..files import append_line, locked, write_whole
from ..runs import read_rows
from ..types import Audit, Message, Seed, Verdict
from .base import Pair
from .wildchat import RealConversation

FORMAT = 1
_MANIFEST = "evaluation.json"


@dataclass(slots=True)
class SuiteRecords:
    """Audits and verdicts of one suite, by audit id."""

    folder: Path
    suite: str
    audits: dict[str, Audit] = field(default_factory=dict[str, Audit])
    verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])

    @property
    def audits_file(self) -> Path:
        """One audit a line."""
        return self.folder / f"{self.suite}.audits.jsonl"

    @property
    def verdicts_file(self) -> Path:
        """One verdict a line, while the suite runs."""
        return self.folder / f"{self.suite}.verdicts.jsonl"

    @classmethod
    def load(cls, folder: Path, suite: str) -> SuiteRecords:
        """Read what is there. A last line that a kill cut off is dropped.

        Raises:
            RunError: A damaged line, or one from another version.
        """
        records = cls(folder, suite)
        for number, row in enumerate(read_rows(records.audits_file)[0], start=1):
            audit, verdicts = _read_line(records.audits_file, number, row)
            records.audits[audit.id] = audit
            records.verdicts |= {v.audits[0]: v for v in verdicts}
        for number, row in enumerate(read_rows(records.verdicts_file)[0], start=1):
            verdict = _read(Verdict, row, records.verdicts_file, number)
            records.verdicts[verdict.audits[0]] = verdict
        return records

    def reopen(self) -> None:
        """Make the files ready for appending. Audits that failed and verdicts that a provider's failure prevented are to be had again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.audits = {k: a for k, a in self.audits.items() if not a.failed}
        self.verdicts = {k: v for k, v in self.verdicts.items() if k in self.audits and not (v.missing or "").startswith("provider")}
        write_whole(self.audits_file, "".join(_line(a, ()) for a in self.audits.values()))
        write_whole(self.verdicts_file, "".join(f"{v.model_dump_json()}\n" for v in self.verdicts.values()))

    def add_audit(self, audit: Audit) -> None:
        """Keep an audit. RunError when it can't be written."""
        self.audits[audit.id] = audit
        self._append(self.audits_file, _line(audit, ()).rstrip("\n"))

    def add_verdict(self, verdict: Verdict) -> None:
        """Keep a verdict. RunError when it can't be written."""
        self.verdicts[verdict.audits[0]] = verdict
        self._append(self.verdicts_file, verdict.model_dump_json())

    def _append(self, path: Path, line: str) -> None:
        try:
            append_line(path, line)
        except OSError as error:
            raise RunError(f"{path}: can't be written ({error.strerror}); make room, then run the same command again") from None

    def finish(self, order: Sequence[str]) -> None:
        """Write audits and verdicts into one file, in the order of the audits' ids given."""
        lines = (_line(self.audits[i], [self.verdicts[i]] if i in self.verdicts else ()) for i in order)
        write_whole(self.audits_file, "".join(lines))
        self.verdicts_file.unlink(missing_ok=True)


def _line(audit: Audit, verdicts: Sequence[Verdict]) -> str:
    return json.dumps({"audit": audit.model_dump(mode="json"), "verdicts": [v.model_dump(mode="json") for v in verdicts]}) + "\n"


def _read_line(path: Path, number: int, row: Mapping[str, Any]) -> tuple[Audit, list[Verdict]]:
    audit = _read(Audit, row.get("audit"), path, number)
    return audit, [_read(Verdict, value, path, number) for value in row.get("verdicts", ())]


def _read[T: (Audit, Verdict)](kind: type[T], value: Any, path: Path, number: int) -> T:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"])) or kind.__name__.lower()
        raise RunError(
            f"{path}: line {number}: {key}: {first['msg']}; it was written by another version or is damaged. "
            "Remove the line, or the file to run the suite again"
        ) from None


@contextmanager
def owned_folder(folder: Path) -> Generator[None]:
    """Only one process evaluates into a folder at a time."""
    try:
        with locked(folder / ".lock") as mine:
            if not mine:
                raise RunError(f"{folder}: another process is evaluating into this folder; wait for it, or choose another with --out")
            yield
    except OSError as error:
        raise RunError(f"{folder}: can't be written ({error.strerror}); choose another folder with --out") from None


# ---------------------------------------------------------------- the manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `evaluation.json` says. RunError if it is not there, damaged, or of another version."""
    path = folder / _MANIFEST
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder}: no evaluation here ({_MANIFEST} is missing); name the folder that `auditrl eval suite` wrote") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: can't be read ({error}); evaluate into another folder") from None
    found = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if found.get("format") != FORMAT:
        raise RunError(f"{path}: format {found.get('format')!r}, this version reads {FORMAT}; use the version of auditrl that wrote it")
    return found


def check_manifest(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write the manifest of a new evaluation, or refuse to continue one that was something else (RunError names the keys)."""
    path = folder / _MANIFEST
    wanted: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **identity}))
    if not path.exists():
        write_whole(path, json.dumps(wanted, indent=1))
        return
    known = read_manifest(folder)
    changed = [f"{key} (was {_short(known.get(key))}, is {_short(wanted.get(key))})" for key in wanted if known.get(key) != wanted[key]]
    if changed:
        raise RunError(
            f"{folder}: this folder holds another evaluation: {'; '.join(changed)}. Evaluate as before to go on with it, "
            "or choose another folder with --out"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---------------------------------------------------------------- the matching of the realism suite


def write_pairs(path: Path, pairs: Sequence[Pair], cost: Mapping[str, Any], missing: int) -> None:
    """Keep the matching: it may have been paid for, and saved audits can only be judged again with it."""
    rows = [
        {
            "seed": pair.seed.model_dump(mode="json"),
            "similarity": pair.similarity,
            "conversation": {
                "id": pair.real.id,
                "kind": pair.real.kind,
                "source": pair.real.source,
                "messages": [[m.role, m.text, m.ref] for m in pair.real.messages],
            },
        }
        for pair in pairs
    ]
    write_whole(path, json.dumps({"format": FORMAT, "pairs": rows, "cost": dict(cost), "missing": missing}, indent=1, ensure_ascii=False))


def read_pairs(path: Path) -> tuple[list[Pair], dict[str, Any]]:
    """Matching and the file's other keys (`cost`, `missing`). RunError if it can't be read."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        pairs = [
            Pair(Seed.model_validate(row["seed"]), _conversation(row["conversation"]), float(row["similarity"])) for row in value["pairs"]
        ]
    except FileNotFoundError:
        raise RunError(f"{path}: missing; realism audits can only be judged with their real conversations. Run the suite again") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path}: can't be read ({type(error).__name__}: {error}); remove it and realism.audits.jsonl to run it again"
        ) from None
    return pairs, {"cost": value.get("cost", {}), "missing": value.get("missing", 0)}


def _conversation(row: Mapping[str, Any]) -> RealConversation:
    messages = tuple(Message(role=role, text=text, ref=ref) for role, text, ref in row["messages"])
    return RealConversation(row["id"], messages, row["kind"], row["source"])
