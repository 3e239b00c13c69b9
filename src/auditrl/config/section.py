"""What every section of a config is, and the entry of a model."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

LIMITS = ("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout")
"""Keys of a model entry that say how its server is called, not what it answers: treated like `RESUMABLE`."""


class Section(BaseModel):
    """Base of all sections: unknown keys refused, values frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelConfig(Section):
    """Any Inspect model: `provider/name`, with its arguments."""

    model: str
    args: dict[str, Any] = Field(default_factory=dict)
    base_url: str | None = None
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_connections: int | None = Field(default=None, ge=1)
    """Calls at a time, for good. None: Inspect finds a number between 10 and 100 by itself (see `adaptive_connections`)."""
    adaptive_connections: StrictBool | Annotated[int, Field(ge=2, strict=True)] | None = None
    """Upper bound of the calls at a time that Inspect works up to while the server keeps up and backs off from when it says 429."""
    max_retries: int | None = Field(default=10, ge=0)
    """Retries of a call that failed for the server's sake, over about five minutes by default. None: until `timeout`, or for ever."""
    timeout: int | None = Field(default=None, ge=1)
    """Seconds for a call with its retries."""
    attempt_timeout: int | None = Field(default=None, ge=1)
    """Seconds for one attempt; after them it is given up and tried again."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Any other field of Inspect's `GenerateConfig` (`reasoning_effort`, `top_p`, `cache_prompt`, `extra_body`)."""

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_connections is not None and self.adaptive_connections:
            raise ValueError("max_connections fixes the number of calls at a time, adaptive_connections lets it move: drop one")
        if self.timeout is not None and self.attempt_timeout is not None and self.attempt_timeout > self.timeout:
            raise ValueError(f"attempt_timeout = {self.attempt_timeout} is longer than timeout = {self.timeout}, which covers all attempts")
        return self

    @property
    def identity(self) -> str:
        """What makes two entries the same model."""
        return json.dumps([self.model, self.args, self.base_url], sort_keys=True)
