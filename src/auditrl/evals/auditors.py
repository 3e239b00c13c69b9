"""Which auditors are evaluated: one model, a file of many, or a run with its checkpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..audit.context import stable_hash
from ..config import ModelConfig, Section, describe_validation, read_toml
from ..errors import ConfigError

_STEP_FOLDER = re.compile(r"step-(\d+)\Z")


class AuditorEntry(ModelConfig):
    """One auditor of an auditors file: any Inspect model, or a run (`runs/mine`, `runs/mine@20`)."""

    label: str = ""
    """Name in tables; the model's name where there is none."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.label or self.model


class AuditorsFile(Section):
    """An auditors file: `[[auditor]]` tables."""

    auditor: list[AuditorEntry] = Field(min_length=1)


def read_auditors(path: Path) -> list[AuditorEntry]:
    """Auditors of a TOML file, in its order.

    Raises:
        ConfigError: Unreadable, an unknown key, no auditor, or a name that stands twice.
    """
    data: dict[str, Any] = read_toml(path)
    try:
        entries = AuditorsFile.model_validate(data).auditor
    except ValidationError as error:
        raise ConfigError(
            f"{describe_validation(error, str(path))}\n{path}: an auditor is written [[auditor]] with model = 'provider/name'"
        ) from None
    names = [entry.name for entry in entries]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: two auditors are named {repeated!r}; give each a label of its own")
    return entries


def safe_name(text: str) -> str:
    """A folder name for any auditor's name: letters, digits, dots and dashes; a digest keeps different names apart."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:60]
    return (
        plain if plain == text.replace("/", "-").replace("@", "-") and plain else f"{plain or 'auditor'}-{stable_hash(text) % 0xFFFFF:05x}"
    )


@dataclass(frozen=True, slots=True)
class RunReference:
    """A run directory and the step whose checkpoint is meant (None: the last)."""

    path: Path
    step: int | None


def run_reference(model: str) -> RunReference | None:
    """The run that an auditor's name means: a run folder, `folder@step`, or `policy/<run>/checkpoints/step-0020`. None for other models.

    Raises:
        ConfigError: A path that exists but holds no run, or a step that is no number.
    """
    if model.startswith("policy/"):
        folder = Path(model.removeprefix("policy/")).expanduser()
        step = _STEP_FOLDER.match(folder.name)
        if step and (folder.parent.parent / "run.json").exists():
            return RunReference(folder.parent.parent, int(step[1]))
        return None
    text, at, number = model.rpartition("@")
    if not at:
        text, number = model, ""
    path = Path(text).expanduser()
    if (path / "run.json").exists():
        if number and not number.isdigit():
            raise ConfigError(f"auditor {model!r}: the step behind @ must be a number, such as {text}@20")
        return RunReference(path, int(number) if number else None)
    if path.is_dir() or model.startswith((".", "/", "~")):
        raise ConfigError(f"auditor {model!r}: no run in this folder (run.json is missing); name a run, or a model as provider/name")
    return None
