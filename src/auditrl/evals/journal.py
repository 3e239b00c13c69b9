"""Answers that were paid for, appended as they come: an evaluation that was stopped goes on where it stopped.

A journal is a JSON-lines file. Its first row says what the evaluation was asked with; a journal of another question is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..files import append_line
from ..runs import read_rows

FORMAT = "auditrl.journal"
VERSION = 1


class Journal:
    """Records by key, in memory and on disk. A record is a JSON object and is never changed."""

    def __init__(self, path: Path | None, question: Mapping[str, Any]) -> None:
        """Open `path`, or make it; None keeps the records in memory only.

        Args:
            question: Everything that changes answers (models, sizes, random seed), as plain JSON values.

        Raises:
            RunError: The file is a journal of another question (the keys are named), of another version, or no journal.
        """
        self.path = path
        self._records: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        rows, whole = read_rows(path)
        if path.exists() and whole < path.stat().st_size:
            os.truncate(path, whole)  # a kill cut the last line: what follows must not be glued to it
        if not rows:
            if whole:
                raise RunError(f"{path}: no journal of an evaluation; choose another --out FOLDER")
            path.parent.mkdir(parents=True, exist_ok=True)
            append_line(path, json.dumps({"format": FORMAT, "version": VERSION, "question": dict(question)}))
            return
        self._check(rows[0], json.loads(json.dumps(dict(question))))
        for row in rows[1:]:
            self._records[str(row.get("key"))] = row.get("record") or {}

    def _check(self, head: Mapping[str, Any], question: Mapping[str, Any]) -> None:
        if head.get("format") != FORMAT:
            raise RunError(f"{self.path}: no journal of an evaluation; choose another --out FOLDER")
        if head.get("version") != VERSION:
            raise RunError(f"{self.path}: version {head.get('version')!r}, this auditrl reads {VERSION}; choose another --out FOLDER")
        asked: Mapping[str, Any] = head.get("question") or {}
        changed = [key for key in sorted(asked.keys() | question.keys()) if asked.get(key) != question.get(key)]
        if changed:
            shown = "; ".join(f"{key} was {asked.get(key)!r}, is {question.get(key)!r}" for key in changed)
            raise RunError(f"{self.path}: begun with other settings ({shown}). Use those again to go on, or another --out FOLDER")

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def get(self, key: str) -> dict[str, Any] | None:
        """The record, None if there is none yet."""
        return self._records.get(key)

    def add(self, key: str, record: Mapping[str, Any]) -> None:
        """Append and sync one record. The first one under a key stays."""
        if key not in self._records:
            self._records[key] = dict(record)
            if self.path is not None:
                append_line(self.path, json.dumps({"key": key, "record": record}))

    def items(self, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Keys and records, in the order in which they came."""
        return ((key, record) for key, record in self._records.items() if key.startswith(prefix))

    async def once(self, key: str, work: Callable[[], Awaitable[Mapping[str, Any]]]) -> dict[str, Any]:
        """The record under `key`, made by `work` if there is none."""
        found = self._records.get(key)
        if found is None:
            self.add(key, await work())
            found = self._records[key]
        return found


async def gather_limited[T](limit: int, work: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Results of all, at most `limit` at a time. The first failure stops the rest: what is finished stands in the journal."""
    gate = asyncio.Semaphore(limit)

    async def one(job: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await job()

    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(one(job)) for job in work]
    except* Exception as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
