"""The policy's network: a Hugging Face causal language model, full or with a LoRA adapter, and the weights that training changes."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicCache
from transformers.utils import logging as hf_logging

from ..errors import ConfigError
from .kv import is_uniform
from .microbatch import MicroBatch
from .noise import torch_seed

__all__ = ["Attention", "LoraSettings", "Method", "PolicyNetwork", "Weights", "as_policy", "base_of_adapter", "load_network"]

Method = Literal["full", "lora"]
Attention = Literal["auto", "eager", "sdpa", "flash_attention_2"]
Weights = Mapping[str, torch.Tensor]
"""Values of the trainable parameters by name."""
LOGITS = 2**28
"""Logits of trained tokens that are held at once in an update: 1 GiB in float32, of which the loss needs a few copies."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Shape of a LoRA adapter on every linear layer but the output."""

    rank: int = 32
    alpha: int = 64
    dropout: float = 0.0
    """Off by default: with it the trained policy is not quite the one that was sampled."""


class PolicyNetwork:
    """One causal language model and what the engine does with it.

    `config`: the model's (text) config. `layers`: its depth. `uniform`: see `kv.is_uniform`. `trainable`: the parameters that training
    changes: all, or those of the adapter. `checkpointing`: activations are computed again in the backward pass.
    """

    def __init__(self, model: Any, *, base: str, method: Method) -> None:
        self.model = model
        self.base = base
        self.method: Method = method
        self.checkpointing = False
        # LoRA layers sit inside the base model: its own forward skips peft's wrapper
        self.causal: Any = model.get_base_model() if method == "lora" else model
        self.config: Any = self.causal.config.get_text_config()
        self.layers = int(self.config.num_hidden_layers)
        self.uniform = is_uniform(self.config)
        self.trainable: dict[str, nn.Parameter] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._cache_argument = "cache" if "cache" in inspect.signature(self.causal.forward).parameters else "past_key_values"
        self._head: nn.Module | None = self._plain_head()

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.causal.parameters()).device

    @property
    def shares_heads(self) -> bool:
        """Whether an update can continue several rows from one head: it needs a cache, which gradient checkpointing does without."""
        return self.uniform and not self.checkpointing

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence that the model was made for, None if it does not say."""
        length = getattr(self.config, "max_position_embeddings", None)
        return int(length) if length else None

    def checkpoint_activations(self, on: bool) -> None:
        """Switch gradient checkpointing on or off."""
        # transformers 5.2x renames it
        if on:
            enable = getattr(self.causal, "activation_checkpointing_enable", None) or self.causal.gradient_checkpointing_enable
            enable({"use_reentrant": False})
        else:
            disable = getattr(self.causal, "activation_checkpointing_disable", None) or self.causal.gradient_checkpointing_disable
            disable()
        self.checkpointing = on

    def next_logits(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits after the last column, shape (R, V). `ids` and `positions` are (R, new columns); `mask` is (R, all columns)."""
        output = self.causal(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            position_ids=positions.to(self.device),
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: cache},
        )
        return cast(torch.Tensor, output.logits)[:, -1]

    def token_logprobs(self, batch: MicroBatch, *, temperature: float) -> torch.Tensor:
        """Log-probability of the batch's trained tokens, each given everything before it in its segment. Float32, shape (N,).

        Only the places that predict a trained token pass through the output layer, and at most `LOGITS` logits are held at a time: with a
        vocabulary of 128,000 words the logits of one micro-batch take more memory than the model.

        Args:
            batch: See `MicroBatch`.
            temperature: Of the sampling distribution.
        """
        if batch.heads is None:
            # padding on the right: causal attention keeps it away without a mask
            states, places = self._states(batch.ids[:, :-1])[0], batch.columns - 1
        else:
            states, places = self._tail_states(batch, batch.heads), batch.columns
        chosen, tokens = states[batch.rows, places], batch.ids[batch.rows, batch.columns]
        size = max(1, LOGITS // int(self.config.vocab_size))
        if len(tokens) <= size:
            return self._chosen_logprobs(chosen, tokens, temperature)
        parts = [
            checkpoint(self._chosen_logprobs, *part, temperature, use_reentrant=False)
            for part in zip(chosen.split(size), tokens.split(size), strict=True)
        ]
        return torch.cat(parts)

    def _chosen_logprobs(self, states: torch.Tensor, tokens: torch.Tensor, temperature: float) -> torch.Tensor:
        """(N, hidden) states and (N,) tokens that follow them -> (N,) log-probabilities."""
        logits = states if self._head is None else self._head(states)
        logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
        return logprobs.gather(-1, tokens[:, None]).squeeze(-1)

    def _tail_states(self, batch: MicroBatch, heads: torch.Tensor) -> torch.Tensor:
        """States that predict the columns of `batch.ids`, shape (R, T, ...); the first comes from the head."""
        head_states, cache = self._states(heads, cache=DynamicCache(config=self.config))
        last = head_states[torch.arange(len(heads), device=heads.device), batch.head_lengths - 1][batch.head_of][:, None]
        inputs = batch.ids[:, :-1]
        if not inputs.shape[1]:
            return last
        cast(Any, cache).batch_select_indices(batch.head_of)
        lengths = batch.head_lengths[batch.head_of][:, None]
        known = torch.arange(heads.shape[1], device=heads.device)[None, :] < lengths
        mask = torch.cat([known, torch.ones_like(inputs, dtype=torch.bool)], dim=1)
        positions = lengths + torch.arange(inputs.shape[1], device=heads.device)[None, :]
        tail_states, _ = self._states(inputs, cache=cache, attention_mask=mask, position_ids=positions)
        return torch.cat([last, tail_states], dim=1)

    def _states(self, ids: torch.Tensor, *, cache: Cache | None = None, **places: torch.Tensor) -> tuple[torch.Tensor, Cache | None]:
        """What the output layer reads, or the logits of a model whose logits are more than that layer; and the cache, if one is kept."""
        past: dict[str, Any] = {"use_cache": False} if cache is None else {"use_cache": True, self._cache_argument: cache}
        if self._head is None:
            return self.causal(input_ids=ids, **places, **past).logits, cache
        return self.causal.get_decoder()(input_ids=ids, **places, **past).last_hidden_state, cache

    @torch.no_grad()
    def _plain_head(self) -> nn.Module | None:
        """The output layer, if logits are nothing but that layer over the decoder's states (some models scale or cap them)."""
        head = self.causal.get_output_embeddings()
        if head is None or not hasattr(self.causal, "get_decoder"):
            return None
        probe = torch.arange(min(4, self.config.vocab_size), device=self.device)[None, :]
        hidden = self.causal.get_decoder()(input_ids=probe, use_cache=False).last_hidden_state
        same = torch.allclose(head(hidden).float(), self.causal(input_ids=probe, use_cache=False).logits.float(), atol=1e-5)
        return cast(nn.Module, head) if same else None

    def snapshot(self, device: torch.device | None = None) -> dict[str, torch.Tensor]:
        """Copy of the trainable weights, on another device if one is named."""
        return {name: parameter.detach().to(device or parameter.device, copy=True) for name, parameter in self.trainable.items()}

    def set_weights(self, weights: Weights) -> None:
        """Copy weights into the trainable parameters."""
        with torch.no_grad():
            for name, parameter in self.trainable.items():
                parameter.copy_(weights[name])

    @contextmanager
    def using(self, weights: Weights | None) -> Generator[None]:
        """Run with other weights, without copying them. Nothing may be differentiated across the border. None: the current ones."""
        if weights is None:
            yield
            return
        current = {name: parameter.data for name, parameter in self.trainable.items()}
        try:
            for name, parameter in self.trainable.items():
                parameter.data = weights[name]
            yield
        finally:
            for name, parameter in self.trainable.items():
                parameter.data = current[name]

    def fingerprint(self) -> str:
        """Digest of what training does not change: the shapes of everything, and for an adapter the base model's values too (sampled)."""
        digest = hashlib.sha256()
        for name, parameter in self.model.named_parameters():
            digest.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
            if name not in self.trainable:
                values = parameter.detach().flatten()[:: max(1, parameter.numel() // 256)].float().cpu()
                digest.update(values.numpy().tobytes())
        return digest.hexdigest()


@contextmanager
def quiet() -> Generator[None]:
    """No progress bars of transformers: reading and writing a model takes one line of ours, if any."""
    bars: Any = hf_logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def base_of_adapter(folder: Path) -> str | None:
    """Base model that a PEFT adapter folder names, None if the folder is not one."""
    config = folder / "adapter_config.json"
    if not config.is_file():
        return None
    try:
        return str(json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{config}: not a readable PEFT adapter config ({error}). Save the adapter again with peft's `save_pretrained`."
        ) from error


def load_network(
    model: str | Path,
    *,
    method: Method,
    lora: LoraSettings | None,
    dtype: str,
    device: str,
    gradient_checkpointing: bool,
    seed: int,
    attention: Attention = "auto",
) -> PolicyNetwork:
    """Load the starting policy: a model folder or id, or the folder of an adapter to go on with.

    Raises:
        ConfigError: The model is missing or unreadable, or does not fit the method, the device or the attention.
    """
    source = str(model)
    folder = Path(source).expanduser()
    adapter_base = base_of_adapter(folder)
    if adapter_base is not None and method == "full":
        raise ConfigError(
            f'{folder} is a LoRA adapter and can\'t be fine-tuned in full. Set policy.method = "lora", or name a whole model.'
        )
    base = adapter_base if adapter_base is not None else str(folder) if folder.is_dir() else source
    place = _resolve_device(device)
    causal = _load_causal(base, resolve_dtype(dtype, place), attention)
    return as_policy(
        causal.to(place),
        base=base,
        method=method,
        lora=lora,
        adapter=folder if adapter_base is not None else None,
        gradient_checkpointing=gradient_checkpointing,
        seed=seed,
    )


def as_policy(
    causal: Any,
    *,
    base: str,
    method: Method,
    lora: LoraSettings | None = None,
    adapter: Path | None = None,
    gradient_checkpointing: bool = False,
    seed: int = 0,
) -> PolicyNetwork:
    """Make a causal language model that is in memory, on its device, the policy: with an adapter of its own if the method wants one.

    Args:
        causal: A `transformers` model; it is changed in place.
        base: What checkpoints say that the model is.
        adapter: Folder of an adapter to go on with; None starts a new one of shape `lora`.
        seed: Of a new adapter.
    """
    _remove_dropout(causal)
    loaded: Any = causal
    if method == "lora":
        import peft

        if adapter is not None:
            loaded = cast(Any, peft.PeftModel).from_pretrained(causal, str(adapter), is_trainable=True)
        else:
            shape = lora or LoraSettings()
            settings = peft.LoraConfig(
                r=shape.rank, lora_alpha=shape.alpha, lora_dropout=shape.dropout, target_modules="all-linear", task_type="CAUSAL_LM"
            )
            # the adapter's start is random, and must not depend on what ran before
            with torch_seed(seed):
                loaded = peft.get_peft_model(causal, settings)
    loaded.eval()
    network = PolicyNetwork(loaded, base=base, method=method)
    if gradient_checkpointing:
        network.checkpoint_activations(True)
    return network


def resolve_dtype(dtype: str, device: torch.device) -> str:
    """`auto` is bfloat16 on a GPU that computes in it, else the model's own."""
    if dtype == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported():
        return "bfloat16"
    return dtype


def _load_causal(base: str, dtype: str, attention: Attention) -> Any:
    is_path = Path(base).is_absolute() or base.startswith((".", "~")) or Path(base).is_dir()
    if is_path and not Path(base).is_dir():
        raise ConfigError(
            f"policy.model: there is no model folder {base}. Give the folder of a Hugging Face model (with config.json) or a model id."
        )
    if is_path and not (Path(base) / "config.json").is_file():
        raise ConfigError(
            f"policy.model: {base} has no config.json, so it is not a Hugging Face model folder. Save one with `save_pretrained`."
        )
    try:
        with quiet():
            return cast(Any, AutoModelForCausalLM).from_pretrained(
                base,
                dtype="auto" if dtype == "auto" else getattr(torch, dtype),
                attn_implementation=None if attention == "auto" else attention,
            )
    except Exception as error:  # transformers, safetensors and the hub client raise classes of their own
        if attention != "auto" and isinstance(error, (ImportError, ValueError)):
            raise ConfigError(
                f'policy.local.attention = "{attention}" can\'t be used here ({error}). Use "auto", which takes what torch has, or install '
                "what is missing."
            ) from error
        raise ConfigError(
            f"policy.model: can't load {base} ({type(error).__name__}: {error}). "
            "Check the folder's files, or the model id and the connection."
        ) from error


def _resolve_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("mps"):
        raise ConfigError("policy.local.device: mps has no 64-bit floats, which sampling needs. Use `cpu`.")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"policy.local.device: {device} can't be used here ({error}). Use `auto` or `cpu`.") from error
    return resolved


def _remove_dropout(model: Any) -> None:
    """Sampling never drops anything; with dropout in the update the ratio to the sampling policy would be noise."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
