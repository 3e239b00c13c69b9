"""Renderer for models with a chat template, and the choice of a renderer for a model folder."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from ..audit.context import current_audit
from ..errors import ConfigError
from .renderer import Renderer
from .tool_syntax import parse_tool_calls

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage
    from inspect_ai.tool import ToolCall, ToolInfo

__all__ = ["RENDERER_FILE", "ChatTemplateRenderer", "RemembersSamples", "open_renderer"]

RENDERER_FILE = "auditrl_renderer.json"
"""File in a model folder that names its renderer; without it the tokenizer's chat template is used."""

_NAMED = {"sim": ("auditrl.sim.language", "SimRenderer"), "messages": ("auditrl.policy.message_renderer", "MessageRenderer")}
"""Renderers by name: module and class, whose `for_folder(folder)` opens one."""

_AUDITS_KEPT = 512
_CONVERSATIONS_KEPT = 4
"""An audit can speak with the policy in more than one role (auditor, realism filter); each is a conversation of its own."""


@runtime_checkable
class RemembersSamples(Protocol):
    """A renderer that wants to know what was sampled, so as not to encode it again."""

    def remember(self, prompt: Sequence[int], sampled: Sequence[int], message_id: str) -> None:
        """`sampled` was drawn after `prompt` and became the assistant message with this id."""
        ...


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A conversation up to and including its last sample.

    `text` leaves out the token that ended the sample (`end`, "" if the limit did); `tokens` has it.
    """

    text: str
    end: str
    tokens: list[int]


@dataclass(slots=True)
class _Memory:
    """One audit's conversations so far."""

    conversations: list[_Conversation] = field(default_factory=list[_Conversation])
    """Newest last."""
    rendered: dict[tuple[int, ...], str] = field(default_factory=dict[tuple[int, ...], str])
    """Text of prompts whose sample is not there yet."""
    written: dict[str, str] = field(default_factory=dict[str, str])
    """Message id -> the text exactly as it was sampled."""


class ChatTemplateRenderer:
    """Messages and tools -> tokens through the tokenizer's own chat template; sampled text -> tool calls.

    What was sampled in an audit is put back exactly as it was written, and its tokens are kept: only text behind it is encoded. Where a
    template rewrites history (dropping old reasoning, trimming blanks), the prompt is encoded anew and starts a new training segment.

    Args:
        tokenizer: Hugging Face tokenizer with a chat template.
        options: Further arguments of the template, such as `{"enable_thinking": False}`.

    Raises:
        ConfigError: The tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, *, options: dict[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = options or {}
        if not tokenizer.chat_template:
            raise ConfigError(
                f"policy.model: the tokenizer of {tokenizer.name_or_path or 'the model'} has no chat template. "
                "Use an instruction-tuned model, or put a chat_template.jinja into its folder."
            )
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._stop, self._template_end = self._end_tokens()

    @classmethod
    def from_pretrained(cls, model: str | Path, *, options: dict[str, Any] | None = None) -> ChatTemplateRenderer:
        """Renderer of a model folder or id.

        Raises:
            ConfigError: There is no tokenizer, or it has no chat template.
        """
        from transformers import AutoTokenizer

        try:
            tokenizer = cast(Any, AutoTokenizer).from_pretrained(str(model))
        except Exception as error:  # the hub client and the tokenizers raise classes of their own
            raise ConfigError(
                f"policy.model: can't load a tokenizer from {model} ({error}). Put the base model's tokenizer files there."
            ) from error
        return cls(tokenizer, options=options)

    @property
    def stop(self) -> list[int]:
        """End-of-text, and what the template writes behind an assistant's message."""
        return self._stop

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo]) -> list[int]:
        """Tokens of the conversation, ready for the assistant's next message.

        Raises:
            ConfigError: The template refuses the conversation (no system messages, no tools, ...).
        """
        memory = self._memory()
        text = self._text(messages, tools, memory.written if memory is not None else {})
        if memory is None:
            return self._encode(text)
        known = max(
            (c for c in memory.conversations if text.startswith(c.text)), key=lambda c: len(c.text), default=_Conversation("", "", [])
        )
        tokens = [*known.tokens, *self._encode(self._behind(text, known))]
        memory.rendered[tuple(tokens)] = text
        return tokens

    def remember(self, prompt: Sequence[int], sampled: Sequence[int], message_id: str) -> None:
        """Keep a sample's tokens for the audit's next turn. Outside of an audit nothing is kept."""
        memory = self._memory()
        text = memory.rendered.pop(tuple(prompt), None) if memory is not None else None
        if memory is None or text is None:
            return
        body, end = self._split_end(sampled)
        written = self._decode(body)
        memory.written[message_id] = written
        memory.conversations = [c for c in memory.conversations if not text.startswith(c.text)]
        memory.conversations.append(_Conversation(text + written, self._decode(end), [*prompt, *sampled]))
        del memory.conversations[:-_CONVERSATIONS_KEPT]

    def parse(self, tokens: Sequence[int], messages: Sequence[ChatMessage]) -> tuple[str, list[ToolCall]]:
        """Text and tool calls of a sample."""
        body, _ = self._split_end(tokens)
        number = sum(m.role == "assistant" for m in messages)
        return parse_tool_calls(self._decode(body), prefix=f"call-{number}")

    def _memory(self) -> _Memory | None:
        audit = current_audit()
        if audit is None:
            return None
        memory = self._memories.setdefault(audit.id, _Memory())
        self._memories.move_to_end(audit.id)
        while len(self._memories) > _AUDITS_KEPT:
            self._memories.popitem(last=False)
        return memory

    def forget(self, audit_id: str) -> None:
        """Drop what is kept for an audit that has ended."""
        self._memories.pop(audit_id, None)

    def _behind(self, text: str, known: _Conversation) -> str:
        """What a rendered conversation adds to a known one. The template closes a message in its own way, whichever token ended it."""
        rest = text[len(known.text) :]
        if known.end:
            for marker in (known.end, self._template_end):
                if rest.startswith(marker):
                    return rest[len(marker) :]
        return rest

    def _split_end(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        ended = bool(tokens) and tokens[-1] in self._stop
        return (list(tokens[:-1]), [tokens[-1]]) if ended else (list(tokens), [])

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False)) if tokens else ""

    def _text(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo], written: dict[str, str]) -> str:
        try:
            return self._render([_as_dict(m, written) for m in messages], tools)
        except ConfigError:
            if not written:
                raise
            # some templates want to see the call that a tool result answers: they get the parsed messages, and start a new segment
            return self._render([_as_dict(m, {}) for m in messages], tools)

    def _render(self, messages: list[dict[str, Any]], tools: Sequence[ToolInfo], *, ready: bool = True) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages,
                    tools=[_tool_as_dict(tool) for tool in tools] or None,
                    add_generation_prompt=ready,
                    tokenize=False,
                    **self._options,
                )
            )
        except Exception as error:  # jinja's errors, and what templates raise themselves
            raise ConfigError(
                f"policy.model: the chat template of {self._tokenizer.name_or_path or 'the model'} can't render this conversation "
                f"({type(error).__name__}: {error}). Choose a model whose template knows system messages and tools."
            ) from error

    def _end_tokens(self) -> tuple[list[int], str]:
        """Tokens that end a turn, and the text by which the template ends one ("" if by none)."""
        marker = "auditrl"
        example = self._render([{"role": "user", "content": "?"}, {"role": "assistant", "content": marker}], [], ready=False)
        behind = self._encode(example.rpartition(marker)[2].lstrip()) if marker in example else []
        special = set(cast(dict[int, Any], self._tokenizer.added_tokens_decoder))
        closing = [token for token in behind[:1] if token in special]
        ends = [self._tokenizer.eos_token_id, *closing]
        return sorted({int(token) for token in ends if token is not None}), self._decode(closing)


def _as_dict(message: ChatMessage, written: dict[str, str]) -> dict[str, Any]:
    """A message as templates expect it; one that the policy wrote in this audit exactly as it wrote it."""
    if message.role == "assistant":
        if message.id is not None and message.id in written:
            return {"role": "assistant", "content": written[message.id]}
        calls = [
            {"type": "function", "id": call.id, "function": {"name": call.function, "arguments": call.arguments}}
            for call in message.tool_calls or []
        ]
        return {"role": "assistant", "content": message.text, **({"tool_calls": calls} if calls else {})}
    if message.role == "tool":
        text = f"Error: {message.error.message}" if message.error is not None else message.text
        return {"role": "tool", "name": message.function or "", "tool_call_id": message.tool_call_id or "", "content": text}
    return {"role": message.role, "content": message.text}


def _tool_as_dict(tool: ToolInfo) -> dict[str, Any]:
    parameters = tool.parameters.model_dump(mode="json", exclude_none=True)
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": parameters}}


def open_renderer(model: str | Path, *, options: dict[str, Any] | None = None) -> Renderer:
    """The renderer that a model folder asks for (`auditrl_renderer.json`), else that of its chat template.

    Raises:
        ConfigError: The file is unreadable or names an unknown renderer; or see `ChatTemplateRenderer`.
    """
    path = Path(model).expanduser() / RENDERER_FILE
    if not path.is_file():
        return ChatTemplateRenderer.from_pretrained(model, options=options)
    try:
        name: Any = json.loads(path.read_text(encoding="utf-8"))["renderer"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'{path}: can\'t be read ({error}). It must hold {{"renderer": "sim"}}, or be deleted to use the chat template.'
        ) from error
    if name not in _NAMED:
        raise ConfigError(
            f"{path}: there is no renderer {name!r}. Known: {', '.join(sorted(_NAMED))}; delete the file to use the chat template."
        )
    module, attribute = _NAMED[name]
    factory: Any = getattr(import_module(module), attribute)
    return cast(Renderer, factory.for_folder(path.parent))
