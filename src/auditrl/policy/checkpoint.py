"""Checkpoints: a normal Hugging Face folder (or PEFT adapter folder), plus `optimizer.pt` and `engine.json`.

`engine.json` holds the base model, the method, the step and a digest of every other file. A checkpoint is written into a sibling
folder and renamed when it is whole and on disk, so that a folder with the final name is never half written.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..errors import RunError
from ..files import sync
from .network import PolicyNetwork, quiet

__all__ = ["CheckpointInfo", "read_optimizer", "read_weights", "verify", "write_checkpoint"]

FORMAT = 1
_MANIFEST = "engine.json"
_OPTIMIZER = "optimizer.pt"
_COMPANIONS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "auditrl_renderer.json",
)
"""Files beside the weights that a model folder needs to be used, copied as they are."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """What `engine.json` says."""

    base: str
    method: str
    fingerprint: str
    step: int
    files: dict[str, str]
    format: int = FORMAT


def write_checkpoint(folder: Path, network: PolicyNetwork, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write a whole checkpoint, replacing one of the same name.

    Raises:
        RunError: The folder can't be written.
    """
    try:
        with _replacing(folder) as part, quiet():
            if network.method == "lora":
                # "auto" would ask the model hub whether the vocabulary was resized
                network.model.save_pretrained(str(part), save_embedding_layers=False)
            else:
                network.model.save_pretrained(str(part), max_shard_size="1000GB")
            _copy_companions(Path(network.base), part)
            torch.save(optimizer.state_dict(), part / _OPTIMIZER)
            files = {p.relative_to(part).as_posix(): _digest(p) for p in sorted(part.rglob("*")) if p.is_file()}
            info = CheckpointInfo(network.base, network.method, network.fingerprint(), step, files)
            (part / _MANIFEST).write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have their own words for a full disk
        raise RunError(
            f"{folder}: the checkpoint can't be written ({error}). Free space or mend the permissions, then `auditrl resume`."
        ) from error


@contextmanager
def _replacing(folder: Path) -> Generator[Path]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.part-{os.getpid()}")
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    try:
        yield part
        for path in [*part.rglob("*"), part]:
            sync(path)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _copy_companions(base: Path, target: Path) -> None:
    if base.is_dir():
        for pattern in _COMPANIONS:
            for path in sorted(base.glob(pattern)):
                if path.is_file() and not (target / path.name).exists():
                    shutil.copyfile(path, target / path.name)
    else:
        tokenizers: Any = AutoTokenizer
        tokenizers.from_pretrained(str(base)).save_pretrained(str(target))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, network: PolicyNetwork) -> CheckpointInfo:
    """Check that a checkpoint is whole and belongs to this policy.

    Raises:
        RunError: Missing, truncated or changed files, another method, another base model.
    """
    manifest = folder / _MANIFEST
    mend = "Resume from an earlier checkpoint"
    try:
        info = CheckpointInfo(**json.loads(manifest.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise RunError(f"{manifest} is missing, so {folder} is not a checkpoint. {mend}.") from error
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{manifest} can't be read ({error}). {mend}.") from error
    if info.format != FORMAT:
        raise RunError(f"{manifest}: format {info.format} is not {FORMAT}. Use the version of auditrl that wrote it.")
    if info.method != network.method:
        raise RunError(
            f'{manifest}: saved with method "{info.method}", but policy.method is "{network.method}". Set policy.method = "{info.method}".'
        )
    if info.fingerprint != network.fingerprint():
        raise RunError(
            f'{manifest}: saved from another base model ("{info.base}") than policy.model ("{network.base}"). Set policy.model to that one.'
        )
    for name, digest in info.files.items():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path} is missing from the checkpoint. {mend}.")
        if _digest(path) != digest:
            raise RunError(f"{path} is truncated or was changed after it was written. {mend}.")
    return info


def read_weights(folder: Path, network: PolicyNetwork) -> dict[str, torch.Tensor]:
    """Trainable weights of a verified checkpoint, by the network's parameter names."""
    if network.method == "full":
        dtype = next(iter(network.trainable.values())).dtype
        models: Any = AutoModelForCausalLM
        with quiet():
            saved = models.from_pretrained(str(folder), dtype=dtype)
        return {name: p.detach().to(network.device) for name, p in saved.named_parameters()}
    import peft

    adapters: Any = peft
    before = network.snapshot()
    try:
        adapters.set_peft_model_state_dict(network.model, adapters.load_peft_weights(str(folder), device=str(network.device)))
        return network.snapshot()
    finally:
        network.set_weights(before)


def read_optimizer(folder: Path, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Restore the optimiser's state from a verified checkpoint."""
    optimizer.load_state_dict(torch.load(folder / _OPTIMIZER, map_location=device, weights_only=True))
