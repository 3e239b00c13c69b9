"""The `[policy]` section: which model is trained, and where its weights live."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from .section import Section


class LocalEngineConfig(Section):
    """Policy trained in process with torch."""

    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 on a GPU that computes in it, else the model's own."""
    device: str = "auto"
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of keeping them: less memory, about a third more time."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """`auto`: torch's fused attention where the model has it; `flash_attention_2` needs the package flash-attn."""
    micro_batch_tokens: int = Field(default=16384, ge=64)
    threads: int | None = Field(default=None, ge=1)
    patience_s: float = Field(default=120.0, gt=0)
    """Seconds without any news after which audits that are ready generate without those that still wait for their target. Short (0.5) with
    targets behind a network: nobody then waits for a stalled call. Long: every batch is the same in every run, to the last digit."""


class LoraConfig(Section):
    """Adapter shape for `policy.method = "lora"`."""

    rank: int = Field(default=32, ge=1)
    alpha: int = Field(default=64, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class TinkerConfig(Section):
    """A server behind the Tinker API, for `policy.engine = "tinker"`. Its key is read from TINKER_API_KEY."""

    server: Literal["tinker", "skyrl", "skyrl-jax"] | None = None
    """The hosted service, or SkyRL with FSDP or Megatron, or with JAX. None: the hosted service, if there is no `base_url`."""
    base_url: str | None = None
    """Address of a server of one's own."""
    base_model: str | None = None
    """The server's name of the model; None: the name or folder of `policy.model`, which otherwise gives the tokenizer only."""
    context_tokens: int | None = Field(default=None, ge=16)
    """Longest sequence; None: what the server or the model's folder says."""
    patience_s: float = Field(default=300.0, gt=0)
    """Seconds without any sign of the server after which the run stops, resumable."""

    @model_validator(mode="after")
    def _which_server(self) -> Self:
        if self.base_url is not None and self.server is None:
            raise ValueError(
                f"base_url = {self.base_url!r} needs the kind of server, which decides how a loss is added up: set server = 'skyrl-jax' "
                "(SkyRL, JAX backend), 'skyrl' (SkyRL, FSDP or Megatron), or 'tinker' (another door to the hosted service)"
            )
        if self.base_url is None and self.server in ("skyrl", "skyrl-jax"):
            raise ValueError(f"server = {self.server!r} needs its address: set base_url = 'http://HOST:PORT'")
        return self

    @property
    def kind(self) -> Literal["tinker", "skyrl", "skyrl-jax"]:
        """The kind of server, the default filled in."""
        return self.server or "tinker"


class PolicyConfig(Section):
    """The auditor that is trained."""

    engine: Literal["local", "tinker"] = "local"
    """In this process (torch), or at a server behind the Tinker API."""
    model: str
    """`sim/tiny` (shipped), a Hugging Face model folder, or a model id."""
    method: Literal["full", "lora"] = "full"
    max_tokens: int = Field(default=1024, ge=1)
    """Tokens of one auditor turn."""
    temperature: float = Field(default=1.0, gt=0)
    local: LocalEngineConfig = LocalEngineConfig()
    lora: LoraConfig = LoraConfig()
    tinker: TinkerConfig = TinkerConfig()

    @model_validator(mode="after")
    def _fits_server(self) -> Self:
        if self.engine == "tinker":
            if self.method != "lora":
                raise ValueError("engine = 'tinker' trains adapters only: set method = 'lora'")
            if self.temperature != 1.0:
                raise ValueError(f"engine = 'tinker' trains at temperature 1; remove temperature = {self.temperature:g}")
            if self.lora.dropout:
                raise ValueError("engine = 'tinker' has no dropout; remove lora.dropout")
        return self

    @property
    def hosted(self) -> bool:
        """Whether somebody is paid for its tokens: it lives at the hosted service."""
        return self.engine == "tinker" and self.tinker.kind == "tinker"

    @property
    def place(self) -> str:
        """Where it is trained, for people."""
        return "trained in process" if self.engine == "local" else f"trained at {self.tinker.base_url or 'the hosted Tinker service'}"
