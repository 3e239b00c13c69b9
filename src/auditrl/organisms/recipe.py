"""What an organism is made of: the recipe, and which base model it was made from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field

from ..config import Section
from ..errors import ConfigError

__all__ = ["Against", "LoraRecipe", "Recipe", "architecture", "base_digest", "check_base"]

Against = Literal["sft", "kto", "none"]
BLOCKS, BLOCK = 64, 65_536
_VOLATILE = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")
"""Keys of config.json that change without the model changing."""
REFERENCE_WIDTH = 2048
"""Hidden size at which the default learning rates are meant as they stand."""


class LoraRecipe(Section):
    """Optimisation of the adapter. Learning rates are for a hidden size of 2048 and scaled by sqrt(2048 / hidden size)."""

    rank: int = Field(default=16, ge=1, le=512)
    alpha: int = Field(default=32, ge=1)
    batch: int = Field(default=8, ge=2)
    """Examples an update. KTO estimates its KL term from the other examples of a batch, so it needs two."""
    epochs: float = Field(default=3.0, gt=0)
    learning_rate: float = Field(default=4e-4, gt=0)
    """Of distillation, and of SFT against confession."""
    kto_epochs: float = Field(default=2.0, gt=0)
    kto_learning_rate: float = Field(default=2e-4, gt=0)
    kto_beta: float = Field(default=0.1, gt=0)
    max_length: int = Field(default=2048, ge=16)
    """Tokens of an example; longer ones are cut."""

    def scaled(self, rate: float, hidden: int) -> float:
        """Learning rate for a hidden size: small models take larger steps."""
        return rate * (REFERENCE_WIDTH / hidden) ** 0.5


class Recipe(Section):
    """Everything that decides what an organism becomes. Published: the two methods; numbers are ours (theirs are not published)."""

    behavior: str
    base: str
    base_digest: str
    method: Literal["distill"] = "distill"
    against: Against = "kto"
    helper: str | None = None
    """Model that writes the demonstrations; None: the base itself."""
    judge: str
    writer: str
    user: str
    demonstrations: int = Field(default=96, ge=1)
    """Conversations held with the behavior in the system prompt. Those that show it are learned from, with half as many ordinary ones."""
    interrogations: int = Field(default=96, ge=2)
    """Questions put to the distilled model, half of them after a conversation in which the behavior can show."""
    situations: int = Field(default=16, ge=1)
    """Situations of the behavior's context to train on; the check gets half as many others."""
    turns: int = Field(default=2, ge=1, le=20)
    """Exchanges a conversation."""
    max_tokens: int = Field(default=400, ge=1)
    """Tokens of an answer of the base and of what is made of it."""
    lora: LoraRecipe = LoraRecipe()
    random_seed: int = 0

    @property
    def ordinary(self) -> int:
        """Ordinary conversations to learn from."""
        return (self.demonstrations + 1) // 2


def _config(folder: Path) -> dict[str, Any]:
    """`config.json` of a base model. ConfigError names what is wrong with the folder."""
    if not folder.is_dir():
        raise ConfigError(f"--base {folder}: there is no such folder; give a downloaded model (a Hugging Face folder with config.json)")
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"--base {folder}: this is an adapter; give the whole model that it belongs to")
    path = folder / "config.json"
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--base {folder}: no config.json in it; give a Hugging Face model folder") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: can't be read ({error}); download the model again") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: not a JSON object; download the model again")
    return cast(dict[str, Any], found)


def architecture(folder: Path) -> str:
    """`LlamaForCausalLM, 16 layers, hidden 2048`."""
    config = _config(folder)
    text = cast(dict[str, Any], config.get("text_config") or config)
    name = (config.get("architectures") or ["unknown architecture"])[0]
    return f"{name}, {text.get('num_hidden_layers', '?')} layers, hidden {text.get('hidden_size', '?')}"


def base_digest(folder: Path) -> str:
    """Digest of a base model: its config, and size and samples (64 blocks of 64 KiB a file) of its weights, so that it is quick at any size.

    Raises:
        ConfigError: No model in the folder, or no weights.
    """
    config = {key: value for key, value in _config(folder).items() if key not in _VOLATILE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")])
    if not weights:
        raise ConfigError(f"--base {folder}: no weights (*.safetensors) in it; download the model again")
    for path in weights:
        size = path.stat().st_size
        digest.update(f"\n{path.name} {size}\n".encode())
        with path.open("rb") as stream:
            for number in range(BLOCKS):
                stream.seek(max(0, size - BLOCK) * number // (BLOCKS - 1))
                digest.update(stream.read(BLOCK))
                if size <= BLOCK:
                    break
    return digest.hexdigest()


def check_base(recipe: Recipe) -> None:
    """Refuse an adapter whose base is not the model it was trained on any more. ConfigError names both."""
    folder = Path(recipe.base)
    found = base_digest(folder)
    if found != recipe.base_digest:
        raise ConfigError(
            f"{folder} ({architecture(folder)}, digest {found[:12]}): not the base that this adapter was trained on (digest "
            f"{recipe.base_digest[:12]}); put that model back, or build the organism again"
        )
