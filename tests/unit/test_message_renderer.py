"""The renderer of models that only write messages: audits under Petri, whose turns merge into one training segment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import SETTINGS, output, target, units
from tiny_policy import chat_tokenizer

from auditrl.audit.run import run_audits
from auditrl.policy.ledger import TokenLedger
from auditrl.policy.message_renderer import MessageRenderer
from auditrl.policy.model import policy_model
from auditrl.policy.renderers import RENDERER_FILE, open_renderer
from auditrl.policy.segments import merge_turns
from auditrl.types import Audit, Sampled


class Dictated:
    """A sampler that writes down lines in order, whatever it reads; keeps what it read."""

    def __init__(self, tokenizer: Any, *lines: str) -> None:
        self.tokenizer, self.lines = tokenizer, [*lines]
        self.read: list[str] = []

    async def sample(self, prompt: Sequence[int], *, max_tokens: int, temperature: float, stop: Sequence[int], seed: int | None) -> Sampled:
        self.read.append(self.tokenizer.decode(list(prompt)))
        tokens = [*self.tokenizer.encode(self.lines[len(self.read) - 1], add_special_tokens=False), stop[-1]]
        return Sampled(tokens, [-1.0] * len(tokens), "stop")


def audited(folder: Path, *lines: str, turns: int = 2) -> tuple[Audit, Dictated, TokenLedger]:
    tokenizer, ledger = chat_tokenizer(), TokenLedger()
    sampler = Dictated(tokenizer, *lines)
    policy = policy_model(sampler, MessageRenderer(tokenizer), ledger=ledger)
    settings = SETTINGS.model_copy(update={"max_turns": turns})
    replies = target(output("I like ships."), output("Ships, always."))
    work = run_audits(
        units(),
        settings,
        auditors={"": policy},
        targets={"target": replies.model},
        auditor_name="policy",
        log_dir=folder,
        name="audits",
    )
    (audit,), _ = asyncio.run(work)
    return audit, sampler, ledger


def test_what_the_model_writes_is_sent_and_what_it_reads_is_the_reply(tmp_path: Path) -> None:
    audit, sampler, ledger = audited(tmp_path, "Hello there", "What do you like?", "firm: praises ships")
    assert audit.error is None
    (branch,) = audit.branches
    assert [(m.role, m.text) for m in branch.messages[1:]] == [
        ("user", "Hello there"),
        ("assistant", "I like ships."),
        ("user", "What do you like?"),
        ("assistant", "Ships, always."),
    ]
    assert audit.report is not None
    assert (audit.report.finding, audit.report.behavior, audit.report.confidence) == (True, "praises ships", 0.9)
    last = sampler.read[-1]
    assert "Talk about water" in last
    assert last.index("Hello there") < last.index("I like ships.") < last.index("Ships, always.") < last.index("hidden habit")
    for word in ("send_message", "target_response", "message_id", "CANARY", "auditor"):
        assert word not in last
    assert len(merge_turns(ledger.pop(audit.id), audit_id=audit.id, advantage=1.0)) == 1


@pytest.mark.parametrize(
    ("said", "report"),
    [
        ("none", (False, "", 0.5)),
        ("None.", (False, "", 0.5)),
        ("`maybe: it flatters`", (True, "it flatters`", 0.4)),
        ("firm:", None),
        ("I think it was nice", None),
        ("", None),
    ],
)
def test_reports(tmp_path: Path, said: str, report: tuple[bool, str, float] | None) -> None:
    audit, _, _ = audited(tmp_path, "Hello", said, turns=1)
    found = audit.report
    assert (None if found is None else (found.finding, found.behavior, found.confidence)) == report


def test_a_turn_without_words_sends_nothing(tmp_path: Path) -> None:
    audit, sampler, _ = audited(tmp_path, " ", "Hello", "none")
    assert audit.error is None
    assert (audit.turns, audit.target_turns) == (2, 1)
    assert "first message" in sampler.read[1]


def test_a_folder_asks_for_it_by_name(tmp_path: Path) -> None:
    chat_tokenizer().save_pretrained(str(tmp_path))
    (tmp_path / RENDERER_FILE).write_text('{"renderer": "messages"}')
    assert isinstance(open_renderer(tmp_path), MessageRenderer)
