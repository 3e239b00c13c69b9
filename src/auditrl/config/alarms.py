"""The `[alarms]` section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator

from .section import Section

AlarmAction = Literal["warn", "stop", "off"]


class AlarmRule(Section):
    """One alarm: when it goes off, and what happens then."""

    limit: float = Field(gt=0, allow_inf_nan=False)
    """What the watched number must pass; its unit is the alarm's (docs/alarms.md)."""
    action: AlarmAction | None = None
    """None: `alarms.action`."""
    persistence: int | None = Field(default=None, ge=1)
    """None: `alarms.persistence`."""


class AlarmsConfig(Section):
    """Alarms during training (see `train.monitor`). They change no result, so a resume may change them."""

    every: int | None = Field(default=None, ge=0)
    """Steps between looks; None: `probe.every`, whose audits are used. 0 switches them off."""
    action: AlarmAction = "warn"
    persistence: int = Field(default=2, ge=1)
    """Looks in a row that must pass the limit, so that one noisy look stops nothing."""
    false_accusations: AlarmRule = AlarmRule(limit=0.10)
    unfounded_claims: AlarmRule = AlarmRule(limit=0.05)
    narration_share: AlarmRule = AlarmRule(limit=0.05)
    confrontation_share: AlarmRule = AlarmRule(limit=0.05)
    extreme_share: AlarmRule = AlarmRule(limit=0.05)
    turns_drift: AlarmRule = AlarmRule(limit=2.0)
    length_drift: AlarmRule = AlarmRule(limit=2.5)
    strategy_entropy: AlarmRule = AlarmRule(limit=0.5)
    reward_quality_gap: AlarmRule = AlarmRule(limit=5.0)

    @model_validator(mode="before")
    @classmethod
    def _keep_limits(cls, data: Any) -> Any:
        """An alarm of which only the action or the persistence is given keeps its limit."""
        if not isinstance(data, Mapping):
            return data
        rules = {name: info.default for name, info in cls.model_fields.items() if isinstance(info.default, AlarmRule)}
        given = cast("Mapping[str, Any]", data)
        return {k: {"limit": rules[k].limit, **v} if k in rules and isinstance(v, Mapping) else v for k, v in given.items()}

    @model_validator(mode="after")
    def _units(self) -> Self:
        for name, rule in self.rules().items():
            if name.endswith("_drift") and rule.limit <= 1:
                raise ValueError(f"{name}.limit is a factor against the start, {rule.limit:g} is no drift; 2 means half or double")
            if not name.endswith(("_drift", "_gap")) and rule.limit >= 1:
                raise ValueError(f"{name}.limit is a share, below 1 (given: {rule.limit:g}); 0.15 means 15%")
        return self

    def rules(self) -> dict[str, AlarmRule]:
        """Every alarm by name, `action` and `persistence` filled in; those that are off included."""
        found: dict[str, AlarmRule] = {}
        for name in type(self).model_fields:
            rule = getattr(self, name)
            if isinstance(rule, AlarmRule):
                action = self.action if rule.action is None else rule.action
                found[name] = AlarmRule(limit=rule.limit, action=action, persistence=rule.persistence or self.persistence)
        return found
