"""The tiny policy's language: a word-level vocabulary, and the renderer between it and Petri's conversations.

An audit is one growing token sequence:

    <bos> <seed> words  { <say> words <end>  <reply> words <end> }*  <done>?  <report> stance marker topic <end>

The policy samples what follows a seed or a reply up to `<end>` or `<done>`, and what follows the forced `<report>`. Fixed parts of tool
calls are single tokens, of Petri's wrappers only the bodies are kept, and the `in` of "marker in topic" is left out, so that a turn takes
about 20 tokens and a marker always stands next to its topic. Words of others that the language lacks become `<unk>`; special tokens
can't be written by a target.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..audit.report import REPORT_REQUEST
from ..errors import ConfigError
from .auditors import Turn, make_report
from .phrases import VOCABULARY, words
from .world import MARKERS, MAX_SEED_WORDS, TOPICS, Pair

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, ChatMessageTool
    from inspect_ai.tool import ToolCall, ToolInfo

SPECIALS: tuple[str, ...] = (
    "<pad>", "<unk>", "<bos>", "<seed>", "<say>", "<end>", "<reply>", "<done>", "<report>", "<nudge>", "<error>",
)  # fmt: skip
TOKENS: tuple[str, ...] = (*SPECIALS, *VOCABULARY)
IDS: dict[str, int] = {token: number for number, token in enumerate(TOKENS)}
PAD, UNK, BOS, SEED, SAY, END, REPLY, DONE, REPORT, NUDGE, ERROR = range(len(SPECIALS))

MAX_REPLY_WORDS = 16
MAX_TURN_TOKENS = 16
"""What a policy needs at most for one turn, `<say>` and `<end>` included."""
SYSTEM_MESSAGE = "You are a helpful assistant."
"""System message that the renderer sets for the target in the first turn."""
RENDERER_FILE = "auditrl_renderer.json"

_MARKERS, _TOPICS = frozenset(MARKERS), frozenset(TOPICS)
_RESPONSE = re.compile(r"<target_response>\s*\[message_id: (?P<ref>M\d+)\]\n(?P<body>.*?)\n?</target_response>", re.DOTALL)
_SEED = re.compile(r"<(?P<tag>seed(?:_instructions)?)>(?P<body>.*?)</(?P=tag)>", re.DOTALL)


def word_ids(text: str, limit: int | None = None) -> list[int]:
    """Tokens of a text: its words, `<unk>` for those that the language lacks. Never a special token of the grammar."""
    tokens = words(text)[:limit]
    dropped = {i for i, word in enumerate(tokens) if word == "in" and _joins(tokens[i - 1 : i], tokens[i + 1 : i + 2])}
    return [IDS.get(word, UNK) for i, word in enumerate(tokens) if i not in dropped]


def _joins(left: Sequence[str], right: Sequence[str]) -> bool:
    """Whether an `in` between these stands for nothing but the order: "marker in topic"."""
    return bool(left) and bool(right) and left[0] in _MARKERS and right[0] in _TOPICS


def seed_ids(seed: str) -> list[int]:
    """`<bos> <seed> words`; runs of unknown words shrink to one."""
    ids: list[int] = []
    for token in word_ids(seed):
        if token != UNK or not ids or ids[-1] != UNK:
            ids.append(token)
    return [BOS, SEED, *ids[:MAX_SEED_WORDS]]


def say_ids(message: str) -> list[int]:
    """`<say> words <end>`."""
    return [SAY, *word_ids(message), END]


def reply_ids(reply: str) -> list[int]:
    """`<reply> words <end>`."""
    return [REPLY, *word_ids(reply, MAX_REPLY_WORDS), END]


def report_ids(stance: str, pair: Pair | None) -> list[int]:
    """What follows `<report>`: `none <end>`, or `firm|maybe marker topic <end>`."""
    body = [stance] if pair is None else [stance, pair.marker, pair.topic]
    return [*(IDS[word] for word in body), END]


def text_of(ids: Iterable[int]) -> str:
    """Tokens as text, special ones by their names."""
    return " ".join(TOKENS[i] for i in ids)


def read_say(ids: Sequence[int]) -> str | None:
    """The message of a well-formed `<say> words <end>`, else None."""
    if len(ids) < 3 or ids[0] != SAY or ids[-1] != END or any(i < len(SPECIALS) for i in ids[1:-1]):
        return None
    spoken: list[str] = []
    for word in (TOKENS[i] for i in ids[1:-1]):
        if spoken and _joins(spoken[-1:], (word,)):
            spoken.append("in")
        spoken.append(word)
    message = " ".join(spoken)
    # a text that would be encoded otherwise than it was sampled stays a malformed turn: prompts must grow by what was sampled
    return message if say_ids(message) == list(ids) else None


def read_report(ids: Sequence[int]) -> tuple[str, Pair | None] | None:
    """Stance and pair of a well-formed report, else None."""
    body = [TOKENS[i] for i in ids]
    if body == ["none", "<end>"]:
        return "none", None
    match body:
        case ["firm" | "maybe" as stance, marker, topic, "<end>"] if marker in MARKERS and topic in TOPICS:
            return stance, Pair(topic, marker)
        case _:
            return None


def vocabulary_digest() -> str:
    """Identifies the vocabulary that a model folder was made for."""
    return hashlib.sha256("\n".join(TOKENS).encode()).hexdigest()[:16]


def save_tokenizer(folder: Path) -> None:
    """Write the vocabulary as a Hugging Face tokenizer, and the file that names this renderer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel(IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()  # type: ignore[assignment]
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", bos_token="<bos>", eos_token="<end>"
    )
    fast.save_pretrained(str(folder))
    write_renderer_file(folder)


def write_renderer_file(folder: Path) -> None:
    """Write the file by which `policy/<folder>` finds this renderer."""
    text = json.dumps({"renderer": "sim", "vocabulary": vocabulary_digest()}, indent=1)
    (folder / RENDERER_FILE).write_text(text + "\n", encoding="utf-8")


def _text(message: ChatMessage) -> str:
    return message.text


class SimRenderer:
    """`policy.renderer.Renderer` of the tiny policy.

    What the policy says in short is completed here, not by the policy: the system message of the first turn, the `resume` after each
    message, and the quotes of a report (the replies that name the claimed marker).
    """

    def __init__(self, system_message: str | None = SYSTEM_MESSAGE) -> None:
        """`system_message`: what the target is set up with in the first turn; None leaves it out."""
        self._system_message = system_message

    @classmethod
    def for_folder(cls, folder: Path) -> SimRenderer:
        """Renderer for a model folder. ConfigError if the folder's vocabulary is not this package's."""
        path = folder / RENDERER_FILE
        try:
            made_for = json.loads(path.read_text(encoding="utf-8"))["vocabulary"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path}: can't be read ({error}). Point to a folder that `auditrl warmstart` or a run has written."
            ) from error
        if made_for != vocabulary_digest():
            raise ConfigError(f"{path}: the model was made for another vocabulary ({made_for}). Make it anew with `auditrl warmstart`.")
        return cls()

    @cached_property
    def stop(self) -> list[int]:
        """`<end>` and `<done>`."""
        return [END, DONE]

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolInfo] = ()) -> list[int]:
        """Tokens of the conversation. Grows with it: earlier tokens never change."""
        ids: list[int] = []
        for message in messages:
            match message.role:
                case "user" if not ids:
                    ids += seed_ids(seed_of(_text(message)))
                case "user":
                    ids += _user_ids(_text(message))
                case "assistant":
                    ids += _assistant_ids(message)
                case "tool":
                    ids += _tool_ids(message)
                case _:
                    pass
        return ids

    def parse(self, tokens: Sequence[int], messages: Sequence[ChatMessage]) -> tuple[str, list[ToolCall]]:
        """Text and tool calls of a sample; malformed ones become plain text, which Petri answers by asking to go on."""
        if messages and messages[-1].role == "user" and REPORT_REQUEST in _text(messages[-1]):
            return self._report(tokens, messages), []
        number = sum(m.role == "assistant" for m in messages)
        if list(tokens) == [DONE]:
            return "", [_call(number, 0, "end_conversation")]
        if tokens and tokens[0] == REPORT:
            return "", [_call(number, 0, "report", text=text_of(tokens))]
        message = read_say(tokens)
        if message is None:
            return text_of(tokens), []
        calls = [_call(number, 1, "send_message", message=message), _call(number, 2, "resume")]
        if self._system_message is not None and not _has_sent(messages):
            calls.insert(0, _call(number, 0, "set_system_message", system_message=self._system_message))
        return "", calls

    def _report(self, tokens: Sequence[int], messages: Sequence[ChatMessage]) -> str:
        found = read_report(tokens)
        if found is None:
            return text_of(tokens)
        stance, pair = found
        return make_report("firm" if stance == "firm" else "maybe" if pair else "none", pair, turns_of(messages)).model_dump_json()


def seed_of(text: str) -> str:
    """The seed inside the first user message: its seed tags, or all that follows the first paragraph."""
    match = _SEED.search(text)
    if match:
        return match["body"]
    return text.partition("\n\n")[2] or text


def response_of(text: str) -> tuple[str, str] | None:
    """(number, text) of the target's reply inside the result of `resume`."""
    match = _RESPONSE.search(text)
    return (match["ref"], match["body"]) if match else None


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Messages sent and replies received, as the auditor saw them."""
    turns: list[Turn] = []
    sent = ""
    for message in messages:
        if message.role == "assistant":
            for call in message.tool_calls or []:
                if call.function == "send_message":
                    sent = str(call.arguments.get("message", ""))
        elif message.role == "tool" and message.function == "resume" and not message.error:
            response = response_of(_text(message))
            if response:
                turns.append(Turn(sent, response[1], response[0]))
    return turns


def _has_sent(messages: Sequence[ChatMessage]) -> bool:
    return any(m.role == "assistant" and any(c.function == "send_message" for c in m.tool_calls or []) for m in messages)


def _call(number: int, part: int, function: str, **arguments: str) -> ToolCall:
    from inspect_ai.tool import ToolCall

    return ToolCall(id=f"sim-{number}-{part}", function=function, arguments=arguments)


def _user_ids(text: str) -> list[int]:
    if REPORT_REQUEST in text:
        return [REPORT]
    return [] if re.match(r"Turn \d+ of \d+\.$", text.strip()) else [NUDGE]


def _assistant_ids(message: Any) -> list[int]:
    for call in message.tool_calls or []:
        if call.function == "send_message":
            return say_ids(str(call.arguments.get("message", "")))
        if call.function == "end_conversation":
            return [DONE]
        if call.function == "report":
            return [IDS.get(token, UNK) for token in str(call.arguments.get("text", "")).split()]
    return [IDS.get(token, UNK) for token in message.text.split()]


def _tool_ids(message: ChatMessageTool) -> list[int]:
    if message.error is not None:
        return [ERROR]
    if message.function != "resume":
        return []
    response = response_of(message.text)
    return reply_ids(response[1]) if response else [ERROR]
