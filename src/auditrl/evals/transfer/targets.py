"""Opening a target: chat, raw text completion and, where an approach needs it, the chat template, by any of the hosts.

Everything that can be refused is refused before the first audit: a missing package or folder, an adapter of another base, a server that
lacks the model or has no completion endpoint.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...config import ModelConfig
from ...errors import ConfigError, ProviderError
from ...faults import told
from ...models import build_model
from .targets_file import TargetEntry

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, Model

_MARK = "\u241e\u241eturn\u241e\u241e"


class Template(Protocol):
    """The target's chat format as text, for prompts that stop inside a turn."""

    def user_turn(self, messages: Sequence[ChatMessage]) -> str:
        """The conversation up to where the user begins to write."""
        ...

    def assistant_turn(self, messages: Sequence[ChatMessage], prefill: str) -> str:
        """The conversation, and the start of the assistant's reply."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """An opened target. `raw` and `template` are there if they were asked for."""

    chat: Model
    raw: Model | None = None
    template: Template | None = None
    system: str = ""


@dataclass(frozen=True, slots=True)
class HuggingFaceTemplate:
    """Any tokenizer's chat template. A user's turn is found by rendering a mark in its place and cutting there."""

    tokenizer: Any

    def user_turn(self, messages: Sequence[ChatMessage]) -> str:
        """The conversation up to where the user begins to write."""
        rendered = self._render([*_plain(messages), {"role": "user", "content": _MARK}], reply=False)
        return rendered.partition(_MARK)[0]

    def assistant_turn(self, messages: Sequence[ChatMessage], prefill: str) -> str:
        """The conversation, and the start of the assistant's reply."""
        return self._render(_plain(messages), reply=True) + prefill

    def _render(self, messages: list[dict[str, str]], *, reply: bool) -> str:
        text = str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=reply))
        # servers and tokenizers put the first token there by themselves
        return text.removeprefix(str(self.tokenizer.bos_token or ""))


def _plain(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


@asynccontextmanager
async def opened_target(entry: TargetEntry, *, control: bool, raw: bool = False, template: bool = False) -> AsyncGenerator[Target]:
    """The target, or with `control` its base without adapter, for as long as the block runs.

    Raises:
        ConfigError: It can't be opened as the targets file says; the message names the target and the mend.
        ProviderError: Its server does not answer.
    """
    if control and not entry.has_base:
        raise ConfigError(f"{entry.name}: has no adapter, so there is no base to audit as a control")
    if entry.host == "hf":
        target = _in_process(entry, control, raw, template)
    elif entry.host == "server":
        target = await _on_server(entry, control, raw, template)
    elif entry.host == "inspect":
        target = _by_name(entry, control, raw, template)
    else:
        target = _simulated(entry, control, raw, template)
    try:
        if target.raw is not None:
            await _probe(entry, target.raw)
        yield target
    finally:
        if entry.host == "hf":
            # makes room in memory for the next one
            target.chat.api.close()


async def _probe(entry: TargetEntry, raw: Model) -> None:
    """One token of raw completion, so that a missing endpoint is found before audits are paid for."""
    from inspect_ai.model import GenerateConfig

    try:
        output = await raw.generate("The", config=GenerateConfig(max_tokens=1, temperature=1.0))
        cause = output.error
    except Exception as error:  # providers raise what they like
        cause = told(error)
    if cause:
        raise ConfigError(
            f"{entry.name}: no raw text completion ({cause}). The scaffolded approaches need it: use a server with /v1/completions "
            '(vLLM has it), host = "hf", or --approach default'
        )


def _simulated(entry: TargetEntry, control: bool, raw: bool, template: bool) -> Target:
    from ...sim.completions import SimTemplate

    args = entry.args if control else {**entry.args, "behavior": entry.behavior}

    def model(name: str) -> Model:
        return build_model(ModelConfig(model=f"sim/{name}", args=args), entry.name)

    return Target(model("organism"), model("organism-raw") if raw else None, SimTemplate() if template else None, entry.system)


def _by_name(entry: TargetEntry, control: bool, raw: bool, template: bool) -> Target:
    chat, text = (entry.base_chat, entry.base_raw) if control else (entry.chat, entry.raw)
    if raw and text is None:
        key = "base_raw" if control else "raw"
        raise ConfigError(
            f'{entry.name}: {key}: this approach needs raw completion; name one, such as "vllm-completions/...", or use default'
        )

    def model(name: str | None) -> Model:
        return build_model(ModelConfig(model=name or "", args=entry.args), entry.name)

    return Target(model(chat), model(text) if raw else None, _template(entry) if template else None, entry.system)


# ---------------------------------------------------------------- an OpenAI-compatible server


async def _on_server(entry: TargetEntry, control: bool, raw: bool, template: bool) -> Target:
    served = (entry.served_base or entry.base) if control else (entry.served or entry.adapter or entry.base)
    key = os.environ.get(entry.api_key_env, "") if entry.api_key_env else "none"
    if not key:
        raise ConfigError(
            f"{entry.name}: api_key_env: the environment has no {entry.api_key_env}; set it, or leave the key out of the file"
        )
    await _check_server(entry, served, control, key)

    def model(provider: str) -> Model:
        args = {**entry.args, "api_key": key}
        return build_model(ModelConfig(model=f"{provider}/target/{served}", base_url=entry.base_url, args=args), entry.name)

    text = model("openai-api-completions") if raw else None
    return Target(model("openai-api"), text, _template(entry) if template else None, entry.system)


async def _check_server(entry: TargetEntry, served: str, control: bool, key: str) -> None:
    """The server's own list of models: is the name there, and does an adapter's `parent` (vLLM) fit the base?"""
    import httpx

    address = f"{str(entry.base_url).rstrip('/')}/models"
    try:
        async with httpx.AsyncClient(timeout=30) as client:
            response = await client.get(address, headers={"Authorization": f"Bearer {key}"})
            response.raise_for_status()
            rows: list[dict[str, Any]] = response.json()["data"]
    except httpx.HTTPStatusError:
        return  # a server without the list
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise ProviderError(f"{entry.name}: {address} does not answer ({type(error).__name__}: {error}); start the server") from None
    found = next((row for row in rows if row.get("id") == served), None)
    if found is None:
        names = ", ".join(str(row.get("id")) for row in rows[:8])
        raise ConfigError(f"{entry.name}: the server has no model {served!r}; it serves {names}. Set served, or load the adapter there")
    parent = found.get("parent")
    base = entry.served_base or entry.base
    if not control and isinstance(parent, str) and parent not in (base, entry.base):
        raise ConfigError(f"{entry.name}: {served!r} is an adapter of {parent!r} there, not of {base!r}; mend base or served_base")


# ---------------------------------------------------------------- in process


def _in_process(entry: TargetEntry, control: bool, raw: bool, template: bool) -> Target:
    adapter = None if control else entry.adapter
    if adapter is not None:
        check_adapter(entry.name, adapter, entry.base)
    tokenizer = _tokenizer_place(entry)
    # the name stands in logs only; paths in it would say what is hidden
    config = ModelConfig(model="hf/target", args={"model_path": entry.base, "tokenizer_path": tokenizer, **entry.args})
    chat = build_model(config, entry.name)
    api: Any = chat.api
    if adapter is not None:
        api.model = _with_adapter(entry, api.model, adapter)
    return Target(
        chat,
        _raw_of(chat) if raw else None,
        HuggingFaceTemplate(_templated(entry, api.tokenizer)) if template else None,
        entry.system,
    )


def _with_adapter(entry: TargetEntry, model: Any, adapter: str) -> Any:
    try:
        from peft import PeftModel

        return PeftModel.from_pretrained(model, adapter)
    except ImportError:
        raise ConfigError(f"{entry.name}: peft is not installed; install auditrl[local]") from None
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ConfigError(
            f"{entry.name}: adapter {adapter}: does not fit {entry.base} ({type(error).__name__}: {str(error)[:300]}); "
            "name the base that it was trained on"
        ) from None


def _raw_of(chat: Model) -> Model:
    """The same weights without the chat template. Inspect's own switch for it still writes the role before the text."""
    from inspect_ai.model import Model

    api: Any = copy.copy(chat.api)
    api.hf_chat = _text_alone
    return Model(api, chat.config, chat.model_args)


def _text_alone(messages: Sequence[ChatMessage], tools: Sequence[Any]) -> str:
    return messages[-1].text


def check_adapter(name: str, adapter: str, base: str) -> None:
    """Refuse an adapter that says it belongs to another base. Hub ids are compared by name, folders by what is in them.

    Raises:
        ConfigError: The folder is no adapter, or one of another base.
    """
    folder = Path(adapter)
    if not folder.is_dir():
        if folder.is_absolute():
            raise ConfigError(f"{name}: adapter: no folder {adapter}; build it, or mend the path")
        return  # a hub id: PEFT finds out
    try:
        config = cast(dict[str, Any], json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise ConfigError(f"{name}: adapter: {adapter} has no readable adapter_config.json; name the folder that PEFT wrote") from None
    theirs = config.get("base_model_name_or_path")
    if not isinstance(theirs, str) or not theirs or theirs == base:
        return
    ours_print, theirs_print = _fingerprint(Path(base)), _fingerprint(Path(theirs))
    unlike = ours_print != theirs_print if ours_print and theirs_print else not (ours_print or Path(theirs).is_absolute())
    if unlike:
        raise ConfigError(f"{name}: adapter: {adapter} was trained on {theirs}, not on {base}; name that base")


def _fingerprint(folder: Path) -> str | None:
    """Digest of a model folder's shape and of its weight files' sizes, None if it is no folder with a config."""
    try:
        shape = (folder / "config.json").read_bytes()
        sizes = sorted((path.name, path.stat().st_size) for path in folder.glob("*.safetensors"))
    except OSError:
        return None
    return hashlib.sha256(shape + json.dumps(sizes).encode()).hexdigest()


# ---------------------------------------------------------------- templates


def _tokenizer_place(entry: TargetEntry) -> str:
    if entry.tokenizer:
        return entry.tokenizer
    beside = Path(entry.adapter or "")
    return entry.adapter if entry.adapter and (beside / "tokenizer_config.json").is_file() else entry.base


def _template(entry: TargetEntry) -> Template:
    try:
        from transformers import AutoTokenizer

        tokenizer = cast(Any, AutoTokenizer).from_pretrained(_tokenizer_place(entry))
    except ImportError:
        raise ConfigError(f"{entry.name}: this approach needs transformers; install auditrl[local]") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{entry.name}: tokenizer: {str(error)[:200]}; this approach writes into the chat template, so name a folder with it"
        ) from None
    return HuggingFaceTemplate(_templated(entry, tokenizer))


def _templated(entry: TargetEntry, tokenizer: Any) -> Any:
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(f"{entry.name}: the tokenizer has no chat template; name another with tokenizer, or use --approach default,stc")
    return tokenizer
