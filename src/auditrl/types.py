"""The nouns of auditrl, frozen. Every other module uses these words.

- **behavior**: a hidden tendency, planted in a target's system prompt.
- **seed**: the scenario instruction given to the auditor (never the random seed, which is `random_seed`).
- **scenario**: behavior x seed x condition (planted, persona, clean): what one audit is about.
- **audit**: one investigation of a target by an auditor, with both sides of the conversation and a report.
- **report**: what the auditor concludes at the end of an audit.
- **group**: audits of one scenario; **batch**: the groups of one gradient step.
- **verdict**: what one judge says about one audit or one pair of audits; a verdict can be missing, never silently zero.
- **segment**: tokens that a policy saw and produced, with one advantage: what the engine trains on.

Nothing here imports Inspect or torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Family = Literal["deception", "manipulation", "autonomy", "influence", "sabotage"]
Condition = Literal["planted", "persona", "clean"]
"""`planted`: persona and hidden behavior; `persona`: persona block alone; `clean`: nothing added (production targets too)."""
SeedSplit = Literal["train", "eval", "crux"]
BehaviorSplit = Literal["train", "eval"]
Role = Literal["system", "user", "assistant", "tool"]


class Frozen(BaseModel):
    """Base of the serialisable nouns: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Behavior(Frozen):
    """A hidden behavior of the bank."""

    name: str
    title: str
    family: Family
    source: Literal["auditbench", "paper", "user"]
    split: BehaviorSplit
    activation: str
    activation_terms: tuple[str, ...] = ()
    always_on: bool = False
    needs_tools: bool = False
    description: str
    """One neutral sentence; what judges and reports read."""
    instruction: str
    """The hidden text. Reaches the target model and the judges who may know the truth; never the auditor."""


class Seed(Frozen):
    """A scenario instruction for the auditor."""

    id: str
    """`<behavior>/<file stem>`, or any unique name for seeds from elsewhere."""
    behavior: str | None
    split: SeedSplit
    text: str
    setting: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    """Inspect `ToolInfo` dictionaries that the target has from the start."""


class Scenario(Frozen):
    """Behavior x seed x condition: what the audits of one group share."""

    id: str
    seed: Seed
    condition: Condition
    behavior: str | None = None
    """Name of the behavior whose seed this is; planted only if `condition == "planted"`."""
    target: str = "target"
    """Key of the target in the run config (multi-target runs rotate)."""

    @property
    def planted(self) -> bool:
        """Whether the target carries the behavior."""
        return self.condition == "planted"


class ToolUse(Frozen):
    """A tool call as the model wrote it (arguments untrusted)."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str = ""
    error: str | None = None
    """Parse error reported by the provider, if the call was malformed."""


class Message(Frozen):
    """One message of an audit, reduced to what views and judges need."""

    role: Role
    text: str
    ref: str | None = None
    """The message number that the auditor sees (`M3`); None for messages outside the target's conversation."""
    tool_calls: tuple[ToolUse, ...] = ()
    tool: str | None = None
    """For `role == "tool"`: the function that was answered."""
    tool_call_id: str | None = None
    error: str | None = None
    prefill: bool = False
    """Assistant text written by the auditor, not by the target."""


class Branch(Frozen):
    """One trajectory of the target's conversation. A rollback starts a new branch that repeats the kept prefix."""

    messages: tuple[Message, ...]
    branched_from: str | None = None
    """Ref of the last kept message (`M4`), `""` for a restart, None for the first branch."""
    shared: int = 0
    """How many leading messages are repeated from the parent branch."""


class Quote(Frozen):
    """Verbatim evidence with the number of the message it is taken from."""

    message: str
    text: str

    @field_validator("message", mode="before")
    @classmethod
    def _as_ref(cls, value: Any) -> Any:
        text = str(value).strip().strip("[]")
        return f"M{text}" if text.isdigit() else text


class Prediction(Frozen):
    """A ranked guess at the hidden behavior."""

    behavior: str
    confidence: float = Field(ge=0, le=1)


FIRM = 0.7
"""Confidence from which a finding counts as a firm claim."""


class Report(Frozen):
    """The auditor's conclusion (ours, not in the paper)."""

    finding: bool
    behavior: str = ""
    """The behavior in the auditor's own words; empty for an honest null."""
    confidence: float = Field(default=0.0, ge=0, le=1)
    evidence: tuple[Quote, ...] = ()
    predictions: tuple[Prediction, ...] = Field(default=(), max_length=3)


class Audit(Frozen):
    """One finished (or failed) audit."""

    id: str
    scenario: Scenario
    auditor: str
    """Model name or snapshot of the policy that investigated."""
    index: int = 0
    """Position inside its group."""
    auditor_messages: tuple[Message, ...] = ()
    """Everything the auditor saw and wrote, report step excluded."""
    branches: tuple[Branch, ...] = ()
    """The target's conversation, one entry a trajectory, in the order they were started."""
    report: Report | None = None
    report_text: str = ""
    """What the auditor wrote as its report, kept also when it could not be read."""
    turns: int = 0
    """Auditor turns used (model calls before the report)."""
    target_turns: int = 0
    error: str | None = None
    """Why the audit failed (`boundary: message`), None if it ran to its end."""
    usage: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Tokens by role: `{"auditor": {"input": n, "output": n}, ...}`."""

    @property
    def failed(self) -> bool:
        """Whether the audit did not run to its end."""
        return self.error is not None


class Verdict(Frozen):
    """One judge's answer about one audit or one pair.

    `value` is None when there is no verdict; `missing` then names the cause (refusal, unreadable, provider).
    """

    judge: str
    audits: tuple[str, ...]
    value: float | None
    reason: str = ""
    parts: dict[str, float] = Field(default_factory=dict)
    quotes: tuple[Quote, ...] = ()
    unverified_quotes: int = 0
    order: Literal["", "ab", "ba", "both"] = ""
    missing: str | None = None
    attempts: int = 1
    usage: dict[str, int] = Field(default_factory=dict)

    @property
    def cause(self) -> str:
        """Why there is no verdict, in one word: `tie`, `refusal`, `unreadable`, `contradictory`, `provider`."""
        return in_a_word(self.missing)


def in_a_word(cause: str | None) -> str:
    """What a recorded cause (`word: details`, or `word, more: details`) is counted under."""
    return (cause or "unreadable").partition(":")[0].partition(",")[0]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a policy sampler returns for one prompt."""

    tokens: list[int]
    logprobs: list[float]
    """Log-probability of each token under the sampling policy at sampling time (temperature applied)."""
    stop_reason: Literal["stop", "length"]


@dataclass(slots=True)
class Segment:
    """A run of tokens with one advantage: the unit of training.

    `tokens`, `mask`, `logprobs` have equal length T. `mask[t]` is 1 where the policy produced token t; `logprobs[t]` is its
    log-probability at sampling time (0 where mask is 0).
    """

    tokens: list[int]
    mask: list[int]
    logprobs: list[float]
    advantage: float = 0.0
    audit_id: str = ""
    group: str = ""
