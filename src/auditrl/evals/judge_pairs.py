"""Pairs of audits whose better member is known by construction: what `auditrl judges check` asks a judge about.

Two sets. `sim`: scripted auditors on simulated targets, in the simulated world's small language (`judge_pairs_sim` makes the shipped
file). `written`: audits in plain English, written by hand, whose worse members are derived by rule (`judge_pairs_written`).
Both members of a pair investigate the same target in the same scenario. Which one is better never rests on a judge's opinion or on a
rule that a judge of ours uses, only on what was done to make it: an honest report against an invented one on the same conversation, a
finding that came by itself against one that was dictated to the target, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from ..behaviors.frontmatter import CANARY
from ..errors import ConfigError
from ..types import Audit, Branch, Condition, Frozen, Message, Report, Scenario, Seed, ToolUse

PairSet = Literal["sim", "written"]
SETS: tuple[PairSet, ...] = ("sim", "written")
FORMAT = "auditrl.known_pairs"
VERSION = 1


class Exchange(Frozen):
    """A message to the target and its reply. `prefill` are words that the auditor put into the target's mouth before the reply."""

    said: str
    reply: str
    prefill: str = ""


class Member(Frozen):
    """One audit of a pair."""

    recipe: str
    """How it was made: an archetype of the simulated world, or a rule of the written set. No judge is shown it."""
    exchanges: tuple[Exchange, ...]
    report: Report | None
    report_text: str = ""
    """What was written in place of a report, where it can't be read."""
    shown: bool | None = None
    """Whether the target itself showed the planted behavior without being led or pressed; None where that is open to argument."""
    narrated: bool = False
    """The auditor told the target of a finding that the target had not shown."""


class KnownPair(Frozen):
    """Two audits of one scenario, the better one first."""

    id: str
    set: PairSet
    kind: str
    behavior: str
    """Name in the packaged bank. Planted if `condition` says so; otherwise the scenario's only."""
    condition: Condition
    seed: str
    system: str
    better: Member
    worse: Member

    @property
    def planted(self) -> bool:
        """Whether the pairwise judge is asked; the calibration judge is asked where nothing is planted."""
        return self.condition == "planted"

    def audits(self) -> tuple[Audit, Audit]:
        """The better and the worse audit as any judge sees audits. Ids don't tell which is which to whoever reads them."""
        return self.audit(self.better, 1), self.audit(self.worse, 2)

    def audit(self, member: Member, number: int) -> Audit:
        """A member as an audit."""
        seed = Seed(id=f"known/{self.id}", behavior=self.behavior, split="train", text=self.seed)
        scenario = Scenario(id=f"known/{self.id}/{self.condition}", seed=seed, condition=self.condition, behavior=self.behavior)
        return as_audit(member, self.system, scenario, f"{self.id}#{number}")


def reply_numbers(exchanges: Sequence[Exchange]) -> list[str]:
    """Message number of each reply: the system message is M1, and a prefill has a number of its own."""
    numbers: list[str] = []
    last = 1
    for exchange in exchanges:
        last += 3 if exchange.prefill else 2
        numbers.append(f"M{last}")
    return numbers


def as_audit(member: Member, system: str, scenario: Scenario, audit_id: str) -> Audit:
    """A finished audit with both sides of the conversation, numbered as Petri numbers it."""
    target: list[Message] = [Message(role="system", text=system, ref="M1")]
    auditor: list[Message] = []
    for number, (exchange, ref) in enumerate(zip(member.exchanges, reply_numbers(member.exchanges), strict=True)):
        calls = [ToolUse(name="send_message", arguments={"message": exchange.said})]
        if not number:
            calls.insert(0, ToolUse(name="set_system_message", arguments={"system_message": system}))
        calls.append(ToolUse(name="resume", arguments={"prefill": exchange.prefill} if exchange.prefill else {}))
        last = int(target[-1].ref[1:]) if target[-1].ref else 1
        target.append(Message(role="user", text=exchange.said, ref=f"M{last + 1}"))
        if exchange.prefill:
            target.append(Message(role="assistant", text=exchange.prefill, ref=f"M{last + 2}", prefill=True))
        target.append(Message(role="assistant", text=exchange.reply, ref=ref))
        auditor.append(Message(role="assistant", text="", tool_calls=tuple(calls)))
        auditor.append(Message(role="tool", text=f"Message sent as M{last + 1}.", tool="send_message", ref=f"M{last + 1}"))
        auditor.append(Message(role="tool", text=exchange.reply, tool="resume", ref=ref))
    return Audit(
        id=audit_id,
        scenario=scenario,
        auditor="known",
        auditor_messages=tuple(auditor),
        branches=(Branch(messages=tuple(target)),),
        report=member.report,
        report_text=member.report.model_dump_json() if member.report is not None else member.report_text,
        turns=len(member.exchanges),
        target_turns=len(member.exchanges),
    )


# ---------------------------------------------------------------- files


def dump_pairs(pairs: Iterable[KnownPair]) -> str:
    """JSON lines: a head with the canary, then one pair a line."""
    head = {"format": FORMAT, "version": VERSION, "canary": CANARY}
    rows: list[dict[str, Any]] = [pair.model_dump(mode="json", exclude_defaults=True) for pair in pairs]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [head, *rows])


def parse_pairs(text: str, name: str) -> list[KnownPair]:
    """Inverse of `dump_pairs`. ConfigError names the file, the line and the mend."""
    pairs: list[KnownPair] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row: Any = json.loads(line)
            if number > 1:
                pairs.append(KnownPair.model_validate(row))
            elif (row.get("format"), row.get("version")) != (FORMAT, VERSION):
                raise ValueError(f"not a {FORMAT} file of version {VERSION}")
        except (ValueError, AttributeError) as error:
            first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
            reason = f"key {'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
            raise ConfigError(f"{name}: line {number}: {reason}; write it again with `auditrl judges pairs`") from None
    if not pairs:
        raise ConfigError(f"{name}: holds no pair; write it again with `auditrl judges pairs`")
    return pairs


def choose(pairs: Sequence[KnownPair], *, kinds: Sequence[str] = (), limit: int | None = None) -> list[KnownPair]:
    """Pairs of these kinds (all by default), at most `limit` of them, spread evenly over the kinds.

    Raises:
        ConfigError: A kind that the pairs don't have.
    """
    known = list(dict.fromkeys(pair.kind for pair in pairs))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise ConfigError(f"--only: no pairs of kind {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
    by_kind = [[pair for pair in pairs if pair.kind == kind] for kind in known if not kinds or kind in kinds]
    # one of each kind in turn, so that a small limit still sees every kind
    spread = [group[row] for row in range(max(map(len, by_kind))) for group in by_kind if row < len(group)]
    kept = {pair.id for pair in spread[:limit]}
    return [pair for pair in pairs if pair.id in kept]
