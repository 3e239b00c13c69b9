"""Writing so that a kill at any moment leaves the old file or the new one, never half of one."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .errors import RunError


def write_whole(path: Path, data: bytes | str) -> None:
    """Write to a sibling, sync, rename."""
    raw = data.encode("utf-8") if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
    sync(path.parent)


def write_folder(folder: Path, contents: Mapping[str, bytes | str]) -> list[Path]:
    """Write results, each file whole; returns their paths. Names may hold subfolders. RunError: The folder can't be written."""
    try:
        for name, content in contents.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise RunError(f"{folder}: can't be written ({error.strerror}); choose another folder with --out") from None
    return [folder / name for name in contents]


def sync(path: Path) -> None:
    """Make a file's content, or a rename inside a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, line: str) -> None:
    """Append one line and sync it. A kill can leave a last line without its end, which readers drop."""
    with path.open("ab") as stream:
        stream.write(line.encode("utf-8") + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def locked(path: Path) -> Generator[bool]:
    """Hold an exclusive lock on a file; yields False if another process holds it."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
