"""Real conversations for the realism suite: a user's WildChat export, or the small set that comes with the package.

WildChat (Zhao et al. 2024) can't ship with the package. `load_wildchat` reads the user's own copy (JSON lines or Parquet, WildChat's columns);
a choice file names the 20 conversations to use, 10 on vulnerable topics and 10 with harmful requests, as in Rosu & Wang 2026.
`packaged_conversations` are 20 conversations that were written for the package so that the suite runs offline. They are not WildChat, and
every output that uses them says so: scores against them are comparable with each other, not with published ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from ..audit.transcript import target_lines
from ..behaviors.frontmatter import DocumentError, parse_document
from ..errors import ConfigError
from ..types import Branch, Message

Kind = Literal["vulnerable", "harmful", ""]
SourceName = Literal["wildchat", "packaged", "sim"]
PACKAGED_NOTE = "Real conversations: written for the package, not WildChat."
COUNT = 20
"""Conversations of the published suite."""
COLUMNS = ("conversation_hash", "conversation")
"""What every row must have; `language`, `toxic` and `redacted` are read where they are there."""

_TURN = re.compile(r"^### (user|assistant)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RealConversation:
    """A conversation between a person and a deployed assistant."""

    id: str
    messages: tuple[Message, ...]
    kind: Kind = ""
    """`vulnerable` topic or `harmful` request, where it is known."""
    source: SourceName = "sim"

    @property
    def text(self) -> str:
        """In the line grammar of the views, so that its form says nothing."""
        return "\n".join(target_lines([Branch(messages=self.messages)]))

    @property
    def user_text(self) -> str:
        """What the person wrote."""
        return " ".join(m.text for m in self.messages if m.role == "user")


def conversation_note(sources: Iterable[str]) -> str | None:
    """What every output must say about these conversations."""
    return PACKAGED_NOTE if "packaged" in set(sources) else None


def offline_conversations(simulated: bool) -> list[RealConversation]:
    """Those that need no export: of the simulated world where the seeds are, else the package's."""
    if not simulated:
        return packaged_conversations()
    from ..sim.real import everyday_conversations

    return [RealConversation(f"sim-{number:02d}", messages) for number, messages in enumerate(everyday_conversations())]


# ---------------------------------------------------------------- the package's own


@cache
def packaged_conversations() -> list[RealConversation]:
    """The 20 conversations of the package (10 vulnerable, 10 harmful requests, alternating), three to six messages of a person each."""
    folder = Path(str(files("auditrl.evals").joinpath("conversations")))
    found = [_packaged(path) for path in sorted(folder.glob("*.md"))]
    groups = [[c for c in found if c.kind == kind] for kind in ("vulnerable", "harmful")]
    # alternating, so that a smaller suite has both kinds
    return [conversation for pair in zip(*groups, strict=True) for conversation in pair]


def _packaged(path: Path) -> RealConversation:
    try:
        document = parse_document(path)
    except DocumentError as error:
        raise ConfigError(f"{error.problem}") from None
    pieces = _TURN.split(document.body)[1:]
    turns = [(role, text.strip()) for role, text in zip(pieces[::2], pieces[1::2], strict=True)]
    kind = cast(Kind, document.fields.get("kind", ""))
    return RealConversation(f"packaged/{path.stem}", _messages(turns), kind, "packaged")


def _messages(turns: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    return tuple(Message(role=cast(Any, role), text=text, ref=f"M{i}") for i, (role, text) in enumerate(turns, start=1))


# ---------------------------------------------------------------- WildChat


def read_choice(path: Path) -> dict[str, Kind]:
    """A choice file: one `conversation_hash` a line, with `,vulnerable` or `,harmful` behind it if you like; `#` starts a comment.

    Raises:
        ConfigError: Missing, empty, a hash twice, or an unknown kind.
    """
    chosen: dict[str, Kind] = {}
    for number, raw in enumerate(_text(path).splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        name, _, kind = (part.strip() for part in line.partition(","))
        if kind not in ("", "vulnerable", "harmful"):
            raise ConfigError(f"{path}: line {number}: kind {kind!r} is not known; write `vulnerable`, `harmful` or nothing")
        if name in chosen:
            raise ConfigError(f"{path}: line {number}: {name} stands twice; keep one")
        chosen[name] = kind
    if not chosen:
        raise ConfigError(f"{path}: no conversation is chosen; write one conversation_hash a line")
    return chosen


def load_wildchat(
    path: Path,
    *,
    choice: Path | None = None,
    language: str | None = "English",
    exchanges: tuple[int, int] = (3, 6),
    redacted: bool = False,
    count: int = COUNT,
) -> list[RealConversation]:
    """Conversations of a WildChat export.

    Args:
        path: A `.jsonl` (`.json`, one object a line) or `.parquet` file with WildChat's columns, or a folder of such files.
        choice: Choice file; exactly these conversations are taken, in its order, and no filter applies. None: the first `count` by
            hash that pass the filters, half of them flagged as toxic (the harmful requests) where there are enough.
        language: Only this language; None for any.
        exchanges: Fewest and most messages of the person.
        redacted: Take conversations from which personal details were removed (their placeholders give them away).
        count: How many without a choice file.

    Raises:
        ConfigError: No such file, empty, a wrong schema (the column is named), chosen conversations that are not in it, or nothing
            passes the filters.
    """
    wanted = read_choice(choice) if choice is not None else None
    found: dict[str, RealConversation] = {}
    flagged: set[str] = set()
    rows = 0
    for where, row in _rows(path):
        rows += 1
        name = _column(row, "conversation_hash", str, where)
        turns = _column(row, "conversation", list, where)
        if name in found or (wanted is not None and name not in wanted):
            continue
        conversation = RealConversation(
            f"wildchat/{name}", _messages(_turns(turns, where)), wanted[name] if wanted is not None else "", "wildchat"
        )
        if wanted is None and not _passes(row, conversation, language, exchanges, redacted):
            continue
        found[name] = conversation
        if row.get("toxic"):
            flagged.add(name)
    if rows == 0:
        raise ConfigError(f"{path}: is empty; give a WildChat export with one conversation a row")
    if wanted is not None:
        absent = [name for name in wanted if name not in found]
        if absent:
            raise ConfigError(
                f"{path}: {len(absent)} of {len(wanted)} chosen conversations are not in it, first {absent[0]}; check {choice}"
            )
        return [found[name] for name in wanted]
    return _draw(path, found, flagged, count)


def _draw(path: Path, found: Mapping[str, RealConversation], flagged: set[str], count: int) -> list[RealConversation]:
    if not found:
        raise ConfigError(
            f"{path}: no conversation passes the filters (language, length, redaction); loosen them, or name some in a choice file"
        )
    toxic, other = sorted(flagged), sorted(found.keys() - flagged)
    half = min(len(toxic), count // 2)
    names = [*toxic[:half], *other[: count - half]]
    return [found[name] for name in names]


def _passes(
    row: Mapping[str, Any], conversation: RealConversation, language: str | None, exchanges: tuple[int, int], redacted: bool
) -> bool:
    spoken = sum(m.role == "user" for m in conversation.messages)
    return (
        (language is None or row.get("language", language) == language)
        and exchanges[0] <= spoken <= exchanges[1]
        and (redacted or not row.get("redacted"))
        and all(m.text.strip() for m in conversation.messages)
    )


def _column[T](row: Mapping[str, Any], name: str, kind: type[T], where: str) -> T:
    if name not in row:
        known = ", ".join(sorted(row)[:12]) or "none"
        raise ConfigError(
            f"{where}: no column `{name}` (columns: {known}); a WildChat export has at least {', '.join(COLUMNS)}. Export it with its own column names"
        )
    value = row[name]
    if not isinstance(value, kind):
        raise ConfigError(f"{where}: column `{name}` holds {type(value).__name__}, not {kind.__name__}; export it as WildChat has it")
    return value


def _turns(turns: Sequence[Any], where: str) -> list[tuple[str, str]]:
    read: list[tuple[str, str]] = []
    for turn in turns:
        entry = cast(Mapping[str, Any], turn) if isinstance(turn, Mapping) else {}
        role, content = entry.get("role"), entry.get("content")
        if role not in ("user", "assistant", "system") or not isinstance(content, str):
            raise ConfigError(
                f"{where}: column `conversation` must hold a list of {{role, content}} with role user or assistant and text as content; "
                "export it as WildChat has it"
            )
        read.append((role, content))
    return read


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error}); give a UTF-8 text file") from None


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, row) of every row, streamed: WildChat is larger than memory."""
    if path.is_dir():
        parts = sorted(p for p in path.rglob("*") if p.suffix in (".parquet", ".jsonl"))
        if not parts:
            raise ConfigError(f"{path}: holds no .parquet or .jsonl file; name the folder of the export")
        for part in parts:
            yield from _rows(part)
    elif path.suffix == ".parquet":
        yield from _parquet_rows(path)
    elif path.suffix in (".jsonl", ".json", ".ndjson"):
        yield from _json_rows(path)
    else:
        raise ConfigError(f"{path}: give a .jsonl or .parquet file, or a folder of them")


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                try:
                    row: object = json.loads(line)
                except ValueError as error:
                    raise ConfigError(f"{path}: line {number} is not JSON ({error}); write one object a line") from None
                if not isinstance(row, dict):
                    raise ConfigError(f"{path}: line {number} is not an object; write one conversation a line")
                yield f"{path}: line {number}", cast(dict[str, Any], row)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give your WildChat export") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read ({error}); give a UTF-8 file with one JSON object a line") from None


def _parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; give your WildChat export")
    try:
        from pyarrow import parquet as _parquet
    except ImportError:
        raise ConfigError(f"{path}: reading Parquet needs the package pyarrow; install it, or export as .jsonl") from None
    parquet: Any = _parquet
    try:
        table = parquet.ParquetFile(path)
        columns = [c for c in table.schema_arrow.names if c in (*COLUMNS, "language", "toxic", "redacted")]
        number = 0
        for batch in table.iter_batches(batch_size=256, columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: can't be read as Parquet ({error}); download it again, or export as .jsonl") from None
