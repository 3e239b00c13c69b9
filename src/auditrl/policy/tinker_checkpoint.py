"""Checkpoints of the Tinker engine: a folder whose `engine.json` names the state at the server.

The weights and the optimiser's state lie at the server (with one's own: in its checkpoint folder, known to its database). A run can be
resumed for as long as the server keeps them.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import RunError
from ..files import sync, write_whole

__all__ = ["METHOD", "TinkerCheckpoint", "read_checkpoint", "state_of", "write_checkpoint"]

FORMAT = 1
METHOD = "tinker"
"""What `engine.json` says in place of the local engine's method."""
_MANIFEST = "engine.json"


@dataclass(frozen=True, slots=True)
class TinkerCheckpoint:
    """What `engine.json` says."""

    base: str
    """The server's name of the model."""
    server: str
    """Kind of server."""
    rank: int
    step: int
    uri: str
    """`tinker://...` of weights and optimiser."""
    method: str = METHOD
    files: dict[str, str] = field(default_factory=dict[str, str])
    """None: everything else is at the server."""
    format: int = FORMAT


def write_checkpoint(folder: Path, checkpoint: TinkerCheckpoint) -> None:
    """Write the folder whole, or replace what it says.

    Raises:
        RunError: The folder can't be written.
    """
    text = json.dumps(asdict(checkpoint), indent=2) + "\n"
    try:
        if folder.is_dir():
            write_whole(folder / _MANIFEST, text)
            return
        part = folder.with_name(f".{folder.name}.part-{os.getpid()}")
        shutil.rmtree(part, ignore_errors=True)
        write_whole(part / _MANIFEST, text)
        part.rename(folder)
        sync(folder.parent)
    except OSError as error:
        raise RunError(
            f"{folder}: the checkpoint can't be written ({error}). Free space or mend the permissions, then `auditrl resume`."
        ) from error


def read_checkpoint(folder: Path, base: str, rank: int) -> TinkerCheckpoint:
    """What a folder says, checked against the engine that wants it.

    Raises:
        RunError: Missing, unreadable, or of another engine, base model or rank.
    """
    manifest = folder / _MANIFEST
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        if data["method"] != METHOD:
            raise RunError(f'{manifest}: saved by the engine in process. Set policy.engine = "local", or start a new run.')
        info = TinkerCheckpoint(**data)
    except FileNotFoundError as error:
        raise RunError(f"{manifest} is missing, so {folder} is not a checkpoint. Resume from an earlier checkpoint.") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunError(f"{manifest} can't be read ({error}). Resume from an earlier checkpoint.") from error
    if info.format != FORMAT:
        raise RunError(f"{manifest}: format {info.format} is not {FORMAT}. Use the version of auditrl that wrote it.")
    if info.base != base:
        raise RunError(
            f'{manifest}: saved from another base model ("{info.base}") than "{base}". Set policy.tinker.base_model to that one.'
        )
    if info.rank != rank:
        raise RunError(f"{manifest}: saved with rank {info.rank}, but policy.lora.rank is {rank}. Set policy.lora.rank = {info.rank}.")
    return info


def state_of(folder: Path) -> str | None:
    """The state at the server that a checkpoint names; None for a folder that is none of ours, or can't be read."""
    try:
        data = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data["uri"] if data.get("method") == METHOD and isinstance(data.get("uri"), str) else None
