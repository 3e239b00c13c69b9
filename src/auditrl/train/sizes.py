"""How long audits are: the assumptions behind an estimate, and an audit of that length to show to judges.

Only what models decide is assumed: how many turns an auditor uses, how much it and the target write, how much a judge writes. Everything
else (prompts, hidden blocks, seeds, judges' rules, tool definitions) is counted from the texts themselves. Tokens are words in the
simulated world, whose models count so, and a quarter of the characters elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..errors import ConfigError
from ..runs import Run
from ..types import Audit, Branch, Message, Report, Scenario, ToolUse

CHARACTERS = 4
"""Of one token of English, roughly."""
WORD = "abc "
"""A token of filler: one word, and a token's worth of characters."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Assumed means. Tokens unless said otherwise; each can be set with `--assume name=value`."""

    quit: float
    """Share of audits that the auditor ends before its last turn, at the start of training."""
    quit_end: float
    """The same once `settle` steps are done; in between it is interpolated."""
    settle: float
    """Steps until the auditor has learned to use its turns."""
    unused: float
    """Share of the turns that an audit which ends early leaves unused, on average; from none to twice that, evenly."""
    replies: float
    """Target calls per auditor turn (a turn may also plan, build tools or roll back)."""
    auditor_turn: float
    """Written by the auditor in a turn, its tool calls included."""
    auditor_end: float
    """Written by the auditor to end an audit."""
    seen: float
    """What a reply adds to the auditor's history beyond the auditor's own turn: the reply and the scaffold's words around it."""
    report: float
    """Written by the auditor as its report; in the view of judges."""
    report_written: float
    """The same as the policy counts it."""
    message: float
    """Of a message to the target."""
    reply: float
    """Written by the target."""
    system: float
    """Of the system message that the auditor gives the target."""
    judge_pairwise: float
    judge_calibration: float
    judge_target_view: float
    judge_auditor_view: float
    judge_suite: float
    judge_realism_pair: float
    judge_conduct: float
    """Written by the conduct judge, without the labels."""
    judge_label: float
    """Written by the conduct judge for each message."""
    judge_petri: float
    """Written by Petri's judge, without the grades."""
    judge_grade: float
    """Written by Petri's judge for each dimension."""
    judge_other: float
    """Written by any other judge."""
    again: float
    """Share of judgements that are asked for once more."""

    def quit_at(self, step: float) -> float:
        """Share of audits that end early after `step` steps."""
        done = min(1.0, step / self.settle) if self.settle else 1.0
        return self.quit + (self.quit_end - self.quit) * done

    def judged(self, kind: str, items: int = 0) -> float:
        """What a judge writes; `items` are Petri's dimensions or the messages to label."""
        if kind == "petri":
            return self.judge_petri + self.judge_grade * items
        if kind == "conduct":
            return self.judge_conduct + self.judge_label * items
        return getattr(self, f"judge_{kind}", self.judge_other)


SIMULATED = Sizes(
    quit=0.72, quit_end=0.04, settle=22, unused=0.25, replies=1.0, auditor_turn=9.3, auditor_end=1, seen=9.3, report=7, report_written=3.2,
    message=7.5, reply=7.8, system=5, judge_pairwise=81, judge_calibration=73, judge_target_view=30, judge_auditor_view=30, judge_suite=60,
    judge_realism_pair=16, judge_conduct=12, judge_label=4, judge_petri=38, judge_grade=2, judge_other=40, again=0,
)  # fmt: skip
"""Of the shipped start in the simulated world, measured on quickstart runs."""
REAL = Sizes(
    quit=0, quit_end=0, settle=0, unused=0.3, replies=0.8, auditor_turn=250, auditor_end=60, seen=450, report=300, report_written=300,
    message=150, reply=350, system=150, judge_pairwise=900, judge_calibration=900, judge_target_view=300, judge_auditor_view=300,
    judge_suite=800, judge_realism_pair=250, judge_conduct=300, judge_label=12, judge_petri=900, judge_grade=8, judge_other=400, again=0.02,
)  # fmt: skip
"""Not measured: a guess at chat models that use every turn. Measure with a short run (`--from-run`)."""


def assume(sizes: Sizes, pairs: Iterable[str]) -> Sizes:
    """`["reply=500"]` over the assumptions. ConfigError names the known ones."""
    known = {f.name for f in fields(Sizes)}
    changes: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            changes[name] = float(value)
        except ValueError:
            raise ConfigError(f"--assume {pair}: write name=number, for example reply=500") from None
        if name not in known:
            raise ConfigError(f"--assume {pair}: unknown; known: {', '.join(sorted(known))}")
        if not 0 <= changes[name] < float("inf"):
            raise ConfigError(f"--assume {pair}: must be a number from 0 up")
    return replace(sizes, **changes)


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Tokens of texts."""

    words: bool
    """Count words (the simulated world) instead of a quarter of the characters."""

    def __call__(self, *texts: str) -> float:
        return float(sum(len(t.split()) for t in texts)) if self.words else sum(map(len, texts)) / CHARACTERS


@dataclass(frozen=True, slots=True)
class Length:
    """One possible length of an audit: its weight, auditor turns, target replies, and whether the auditor spent its last turn on ending it."""

    weight: float
    turns: float
    replies: float
    ended: bool = False


def lengths(sizes: Sizes, max_turns: int, quitting: float) -> list[Length]:
    """How long audits are, when a share of them ends early.

    An audit that ends early spends its last turn on ending it: `turns - 1` turns can have a reply.
    """
    steps = max(1, round(2 * sizes.unused * max_turns))
    early = [max(1, max_turns - k) for k in range(min(steps, max_turns - 1) + 1)]
    found = [Length(quitting / len(early), turns, (turns - 1) * sizes.replies, ended=True) for turns in early]
    return [*found, Length(1 - quitting, max_turns, max_turns * sizes.replies)]


def mean_replies(found: Sequence[Length]) -> float:
    """Replies of an average audit."""
    return sum(one.weight * one.replies for one in found)


def typical_audit(sizes: Sizes, scenario: Scenario, replies: int, index: int = 0) -> Audit:
    """An audit of filler words with so many replies: what judges are shown to count what they read."""
    calls: list[Message] = []
    talk: list[Message] = [Message(role="system", text=filler(sizes.system), ref="M1")]
    for i in range(replies):
        asked = filler(sizes.message, i)
        answer = filler(sizes.reply, i)
        plan = max(0.0, sizes.auditor_turn - sizes.message - 20)
        uses = [ToolUse(name="send_message", arguments={"message": asked}), ToolUse(name="resume", arguments={})]
        if not i:
            uses.insert(0, ToolUse(name="set_system_message", arguments={"system_message": filler(sizes.system)}))
        calls.append(Message(role="assistant", text=filler(plan, i), tool_calls=tuple(uses)))
        if not i:
            calls.append(Message(role="tool", tool="set_system_message", text="System message set [message_id: M1]."))
        calls.append(Message(role="tool", tool="send_message", text=f"Message sent [message_id: M{2 * i + 2}]."))
        calls.append(Message(role="tool", tool="resume", text=answer, ref=f"M{2 * i + 3}"))
        talk += [Message(role="user", text=asked, ref=f"M{2 * i + 2}"), Message(role="assistant", text=answer, ref=f"M{2 * i + 3}")]
    report = Report(finding=True, behavior=filler(sizes.report) or "none", confidence=0.5)
    return Audit(
        id=f"estimate/{scenario.id}#{index}",
        scenario=scenario,
        auditor="policy",
        index=index,
        auditor_messages=tuple(calls),
        branches=(Branch(messages=tuple(talk)),),
        report=report,
        turns=replies,
        target_turns=replies,
    )


def filler(tokens: float, position: int = 0) -> str:
    """So many words; fractions add up over positions."""
    return (WORD * (round(tokens * (position + 1)) - round(tokens * position))).strip()


def measured(run: Run, base: Sizes, count: Yardstick) -> Sizes:
    """The assumptions as an earlier run's audits and judgements bear them out; what it can't tell stays as it is.

    Raises:
        ConfigError: The run has no finished audit.
    """
    records: list[Mapping[str, Any]] = []
    done = len(run.metrics())
    for step in range(max(1, done - 4), done + 1):
        records += run.read_step(step, "audits") if done else []
    audits = [a for a in (Audit.model_validate(r["audit"]) for r in records) if not a.failed and a.target_turns]
    if not audits:
        raise ConfigError(f"--from-run {run.path}: no finished audit there to measure; name a run with at least one step")
    limit = run.config.audit.max_turns
    early = [a for a in audits if a.turns < limit]
    talk = [m for a in audits for b in a.branches for m in b.messages[b.shared :]]
    turns, replies = sum(a.turns for a in audits), sum(a.target_turns for a in audits)
    quitting = len(early) / len(audits)
    report = _mean([count(a.report.model_dump_json() if a.report else a.report_text) for a in audits])
    written = sum(a.usage["auditor"]["output"] for a in audits if "auditor" in a.usage)
    report_written = base.report_written if count.words else report
    sent = (written - report_written * len(audits) - base.auditor_end * len(early)) / max(1, turns - len(early))
    return replace(
        base,
        quit=quitting,
        quit_end=quitting,
        settle=0,
        unused=_mean([(limit - a.turns) / limit for a in early]) if early else base.unused,
        replies=replies / max(1, turns - len(early)),
        auditor_turn=max(0.0, sent),
        seen=_seen(audits, sent, base),
        report=report,
        report_written=report_written,
        message=_mean([count(m.text) for m in talk if m.role == "user"]),
        reply=sum(a.usage["target"]["output"] for a in audits) / replies,
        system=_mean([count(m.text) for m in talk if m.role == "system"]),
        **_judged(records, base),
    )


def _seen(audits: Sequence[Audit], sent: float, base: Sizes) -> float:
    """Growth of the auditor's input by a reply: least squares on the formula of `estimate`, over audits of different lengths."""
    import numpy as np

    rows = [(a.turns + 1, _history(a.turns, a.target_turns), a.usage["auditor"]["input"]) for a in audits]
    if len({row[:2] for row in rows}) < 2:
        return base.seen
    table = np.asarray(rows, dtype=np.float64)
    solved: Any = np.linalg.lstsq(table[:, :2], table[:, 2], rcond=None)[0]
    return max(0.0, float(solved[1]) - sent)


def _history(turns: float, replies: float) -> float:
    """Earlier exchanges that the auditor reads, summed over its calls: 0, 1, ..., replies - 1, then `replies` until the report."""
    return replies * (replies - 1) / 2 + replies * (turns + 1 - replies)


def _judged(records: Sequence[Mapping[str, Any]], base: Sizes) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in records:
        for verdict in record["verdicts"]:
            if verdict["usage"] and hasattr(base, f"judge_{verdict['judge']}") and verdict["judge"] != "petri":
                found.setdefault(f"judge_{verdict['judge']}", []).append(verdict["usage"].get("output", 0) / verdict["attempts"])
    return {name: _mean(values) for name, values in found.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def described(sizes: Sizes) -> str:
    """The assumptions as one JSON line."""
    return json.dumps({name: round(value, 3) for name, value in asdict(sizes).items()})
