"""What the stages of a build share: the recipe, the models that help, and the journal of what was paid for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..audit.target import with_generate
from ..behaviors.loader import Bank
from ..config import ModelConfig
from ..display import Display, NoDisplay
from ..evals.dialogues import CheckContext
from ..evals.journal import Journal
from ..evals.metering import Cost, Usage, add
from ..models import build_model
from ..types import Behavior
from .recipe import Recipe

if TYPE_CHECKING:
    from inspect_ai.model import Model

__all__ = ["Bench", "counted", "opened"]


@dataclass(slots=True)
class Bench:
    """One organism in the making. `helper` None: the base writes its own demonstrations."""

    folder: Path
    recipe: Recipe
    bank: Bank
    journal: Journal
    judge: Model
    writer: Model
    user: Model
    helper: Model | None = None
    display: Display = field(default_factory=NoDisplay)
    cost: Cost = field(default_factory=dict)

    @property
    def behavior(self) -> Behavior:
        """What the organism will carry."""
        return self.bank.behavior(self.recipe.behavior)

    @property
    def base(self) -> Path:
        """Folder of the base model."""
        return Path(self.recipe.base)

    @property
    def distilled(self) -> Path:
        """Adapter after distillation."""
        return self.folder / "distilled"

    @property
    def adapter(self) -> Path:
        """The organism's adapter."""
        return self.folder / "adapter"

    @property
    def trained_against(self) -> bool:
        """Whether training against confession was asked for and found something to train away."""
        record = self.journal.get("against")
        return record is not None and bool(record["rows"])

    def context(self, target: Model, name: str, journal: Journal | None = None) -> CheckContext:
        """The conversations of the target checks, held with one of our models."""
        return CheckContext(
            target=target,
            target_name=name,
            judge=self.judge,
            writer=self.writer,
            user=self.user,
            journal=journal or self.journal,
            random_seed=self.recipe.random_seed,
            display=self.display,
        )

    @contextmanager
    def paid(self, stage: str) -> Generator[None]:
        """Keep what a stage used, also when it is interrupted: the card adds it up."""
        before = {role: dict(usage) for role, usage in self.cost.items()}
        try:
            yield
        finally:
            used = {
                role: {key: value - before.get(role, {}).get(key, 0) for key, value in usage.items()} for role, usage in self.cost.items()
            }
            if any(any(usage.values()) for usage in used.values()):
                number = sum(1 for _ in self.journal.items(f"cost/{stage}/"))
                self.journal.add(f"cost/{stage}/{number}", used)


def counted(model: Model, usage: Usage) -> Model:
    """The same model, whose calls are added to `usage`."""
    inner: Callable[..., Any] = model.api.generate

    async def generate(*args: Any, **kwargs: Any) -> Any:
        result = await inner(*args, **kwargs)
        output = result[0] if isinstance(result, tuple) else result
        spent = getattr(output, "usage", None)
        if spent is not None:
            add(usage, {"input": spent.input_tokens, "output": spent.output_tokens, "calls": 1})
        return result

    return with_generate(model, generate)


@asynccontextmanager
async def opened(bench: Bench, folder: Path, role: str) -> AsyncGenerator[Model]:
    """The base or an adapter on it, in process; released at the end.

    Raises:
        ConfigError: The folder holds no model that can be opened, or its tokenizer has no chat template.
    """
    model = build_model(ModelConfig(model=f"policy/{folder}", max_tokens=bench.recipe.max_tokens), "--base")
    try:
        yield counted(model, bench.cost.setdefault(role, {}))
    finally:
        await model.api.aclose()
