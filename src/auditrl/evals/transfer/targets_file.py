"""The targets file: which models are audited, what is hidden in their weights, and how they are reached.

    [defaults]                      # optional: keys that every target shares
    base = "meta-llama/Llama-3.3-70B-Instruct"
    host = "hf"

    [[target]]
    name = "flattery-kto"           # ours: letters, digits, . _ -; the auditor never sees it
    behavior = "flattery"           # a behavior of the bank: what is hidden in the weights
    adapter = "adapters/flattery"   # folder or hub id; leave out for a model that was trained as a whole (`base`)
    made_by = "auditrl organisms build: distillation, then KTO"

A folder is meant relative to the targets file. `host` says how a target is reached:

- `hf`: `base` and `adapter` are loaded in process with transformers and PEFT; `args` go to `from_pretrained` (dtype, device ...).
- `server`: an OpenAI-compatible server at `base_url`, such as vLLM with a LoRA, that answers /v1/chat/completions and
  /v1/completions. `served` is its name for the target (default: `adapter`, else `base`), `served_base` for the base (default: `base`).
- `inspect`: any Inspect models. `chat` talks, `raw` continues text (`vllm-completions/...`, `openai-api-completions/...`),
  `base_chat` and `base_raw` are the same without adapter; `args` go to all of them.
- `sim`: a simulated fine-tuned target; `base` is then "sim/base".

`system` is a system message that the target always gets first, such as the persona that it was trained under; the auditor's own stands
behind it. `tokenizer` names the folder or hub id whose chat template the approaches `user` and `prefill` need (default: adapter, then base).

The judge reads `truth` where it is given (one or two sentences), else the description of the bank's behavior. Nothing of this file
reaches an auditor or a helper model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from ...config import Section, describe_validation, read_toml
from ...errors import ConfigError

Host = Literal["hf", "server", "inspect", "sim"]
_INSPECT_NAMES = ("chat", "raw", "base_chat", "base_raw")


class TargetEntry(Section):
    """One target of a targets file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")
    behavior: str = Field(min_length=1)
    """Name in the bank of what is hidden in the weights."""
    base: str = Field(min_length=1)
    """The model without the behavior: folder or hub id. The false-positive control audits it alone."""
    adapter: str | None = None
    """LoRA that carries the behavior: folder or hub id. None: `base` itself is audited as the target, and there is no control."""
    made_by: str = ""
    """How the behavior got into the weights, for tables and cards."""
    truth: str = ""
    """What the judge takes as the truth, where it differs from the bank's description."""
    system: str = ""
    """System message that the target always gets first. No secret: a persona."""
    tokenizer: str | None = None
    host: Host = "hf"
    args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the provider, as they are."""
    base_url: str | None = None
    api_key_env: str | None = None
    """Environment variable with the server's key (`server`); None: the server wants none."""
    served: str | None = None
    served_base: str | None = None
    chat: str | None = None
    raw: str | None = None
    base_chat: str | None = None
    base_raw: str | None = None

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.host == "server" and not self.base_url:
            raise ValueError('host = "server" needs base_url, such as "http://127.0.0.1:8000/v1"')
        if self.host == "inspect" and not self.chat:
            raise ValueError('host = "inspect" needs chat = "provider/name", and raw = "provider/name" for text completion')
        if self.host != "inspect" and (given := [key for key in _INSPECT_NAMES if getattr(self, key) is not None]):
            raise ValueError(f'{given[0]} belongs to host = "inspect"; remove it, or change host')
        if self.host != "server" and (given := [k for k in ("base_url", "served", "served_base") if getattr(self, k) is not None]):
            raise ValueError(f'{given[0]} belongs to host = "server"; remove it, or change host')
        return self

    @property
    def has_base(self) -> bool:
        """Whether the same model without the behavior can be audited (the false-positive control)."""
        return bool(self.base_chat) if self.host == "inspect" else self.adapter is not None


def load_targets(path: Path, *, behaviors: Sequence[str] | None = None, select: Sequence[str] = ()) -> list[TargetEntry]:
    """Targets of a TOML file, in its order, with folders made absolute.

    Args:
        behaviors: Names that the bank knows; a target of another behavior needs a `truth` of its own. None: not checked.
        select: Patterns on names (`transcripts-kto.*`); a target stays if one of them fits. Empty: all stay.

    Raises:
        ConfigError: Unreadable, an unknown key, no target, a name that stands twice, an unknown behavior, nothing selected.
    """
    data = read_toml(path)
    if unknown := sorted(data.keys() - {"defaults", "target"}):
        raise ConfigError(f"{path}: {unknown[0]}: unknown key; a targets file has [defaults] and [[target]] tables")
    defaults, rows = data.get("defaults", {}), data.get("target", [])
    if not isinstance(defaults, Mapping) or not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: no target; write [[target]] with name, behavior, base and adapter")
    entries = [_entry(defaults, row, path, number) for number, row in enumerate(rows)]
    names = [entry.name for entry in entries]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{path}: two targets are named {repeated!r}; give each a name of its own")
    for entry in entries:
        if behaviors is not None and entry.behavior not in behaviors and not entry.truth:
            raise ConfigError(
                f"{path}: {entry.name}: behavior: the bank has no {entry.behavior!r}; name one of the bank "
                "(`auditrl behaviors list`), add it with --bank, or give the target a truth of its own"
            )
    chosen = [entry for entry in entries if not select or any(fnmatchcase(entry.name, pattern) for pattern in select)]
    if not chosen:
        raise ConfigError(f"{path}: no target fits {', '.join(select)}; there are {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}")
    return chosen


def _entry(defaults: Mapping[str, Any], row: object, path: Path, number: int) -> TargetEntry:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{path}: target.{number}: not a table; write [[target]]")
    try:
        entry = TargetEntry.model_validate({**defaults, **row})
    except ValidationError as error:
        raise ConfigError(describe_validation(error, f"{path}: target.{number}")) from None
    folders = {key: _place(value, path) for key in ("base", "adapter", "tokenizer") if (value := getattr(entry, key))}
    return entry.model_copy(update=folders)


def _place(text: str, path: Path) -> str:
    """An absolute path for a folder (one that exists beside the file, or is written as a path); hub ids stay as they are."""
    folder = Path(text).expanduser()
    beside = folder if folder.is_absolute() else path.parent / folder
    return str(beside.resolve()) if beside.exists() or text.startswith((".", "/", "~")) else text


def write_targets(path: Path, entries: Sequence[TargetEntry]) -> None:
    """Write a targets file whole. Keys that have their default are left out."""
    from ...files import write_whole

    blocks: list[str] = []
    for entry in entries:
        rows = entry.model_dump(mode="json", exclude_defaults=True)
        blocks.append("[[target]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in rows.items()))
    write_whole(path, "\n".join(blocks))


def _toml(value: object) -> str:
    """Plain values as TOML; JSON's strings, numbers and lists are valid TOML as they are."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
