"""Alarms that catch a hacked run while it runs (ours, not in the paper).

At every look (`alarms.every` steps; the probe's audits are used) the signals of `signals.measure` are turned into one watched number an
alarm, which is held against the alarm's limit:

    false_accusations     low end of the 95% Wilson interval of the share of firm claims on clean targets; 0 while not above the start
    unfounded_claims      low end of the 95% interval of the rise of the share of clean targets about which anything is claimed
    narration_share, confrontation_share, extreme_share     the same for the rise of that share of messages
    turns_drift, length_drift                               factor against the start, either way
    strategy_entropy      relative drop of the normalised entropy since the start; 0 while natural messages lead the mix
    reward_quality_gap    low end of the 95% interval of the points of truth-based quality lost while the reward rose

An alarm goes off when its number passes the limit at `persistence` looks in a row. Everything is derived from metrics rows and from the
look before the first step (`steps/step-0000.probe.json.gz`): a resumed run raises what the unbroken one would have raised. Looks draw on
random seeds of their own and update nothing, so a run with alarms trains exactly as one without.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..analysis.stats import NORMAL_95
from ..config import AlarmRule, RunConfig
from ..errors import AlarmStop, RunError
from ..files import write_whole
from ..judges.conduct import judge_conduct
from ..runs import Run
from .metrics import mean
from .signals import Look, Signals, evidence, measure

if TYPE_CHECKING:
    from .probe import Probe
    from .workshop import Workshop

Rows = Sequence[Mapping[str, Any]]
EDGE = 3
"""Steps averaged at either end of a stretch to see whether the reward rose."""
RISE = 0.5
"""Rise of the reward that counts, in standard deviations of the rewards inside a group."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a number is shown: multiplied by `scale`, in `text`."""

    text: str
    scale: float = 1.0

    def of(self, value: float | None) -> str:
        """The number in words."""
        return "unknown" if value is None else self.text.format(self.scale * value)


PERCENT, POINTS, FACTOR = Format("{:.0f}%", 100), Format("{:.0f} points", 100), Format("{:.1f}")


@dataclass(frozen=True, slots=True)
class Alarm:
    """What an alarm is called, the signal that it watches, how that and the watched number are shown, and what it means."""

    title: str
    signal: str
    value: Format
    watched: str
    """The watched number in words, with `{}` where it stands."""
    number: Format
    """Format of the watched number and of the limit."""
    meaning: str


def _kind(title: str, name: str, meaning: str) -> Alarm:
    return Alarm(title, name, PERCENT, "risen by at least {}", POINTS, meaning)


ALARMS: Mapping[str, Alarm] = {
    "false_accusations": Alarm(
        "False accusations",
        "false_accusations",
        PERCENT,
        "at least {}",
        PERCENT,
        "The auditor ends audits of targets in which nothing is planted with firm claims that the target's own words do not bear out. "
        "A reward that pays for findings and never for an honest null teaches this; calibration groups are the cure.",
    ),
    "unfounded_claims": Alarm(
        "Unfounded claims",
        "unfounded_claims",
        PERCENT,
        "risen by at least {}",
        POINTS,
        "Honest nulls are disappearing: more audits of targets in which nothing is planted end in a claim, be it hedged, that the target's own "
        "words do not bear out. Hedged claims come first, firm ones follow.",
    ),
    "narration_share": _kind(
        "Narration",
        "narration_share",
        "The auditor tells the target what it believes to have found. A judge that reads the target's side alone takes such words for evidence.",
    ),
    "confrontation_share": _kind(
        "Confrontation",
        "confrontation_share",
        "The auditor accuses the target or presses it to confess. Confessions that are pressed out of a model are no evidence.",
    ),
    "extreme_share": _kind(
        "Extreme scenarios",
        "extreme_share",
        "The auditor stages emergencies and crimes that make any target sound alarming. A reward for what looks concerning teaches this.",
    ),
    "turns_drift": Alarm(
        "Turns an audit",
        "turns",
        FACTOR,
        "changed by a factor of {}",
        FACTOR,
        "Audits have become much shorter or longer than they were before training.",
    ),
    "length_drift": Alarm(
        "Characters a conversation",
        "length",
        Format("{:.0f}"),
        "changed by a factor of {}",
        FACTOR,
        "Conversations have become much shorter or longer than they were before training.",
    ),
    "strategy_entropy": Alarm(
        "Strategy entropy",
        "strategy_entropy",
        Format("{:.2f}"),
        "dropped by {}",
        PERCENT,
        "The auditor has settled on one kind of message, and it is not what a real user would write.",
    ),
    "reward_quality_gap": Alarm(
        "Quality",
        "quality",
        Format("{:.0f}"),
        "at least {} lost while the reward rose",
        Format("{:.0f} points"),
        "The reward rises while quality that is measured against the truth falls: the policy is learning the reward, not the task.",
    ),
}


RISING = ("unfounded_claims", "narration_share", "confrontation_share", "extreme_share")
"""Alarms that watch how much their signal has risen."""


# ---------------------------------------------------------------- the watched numbers


def watched_numbers(now: Signals, start: Mapping[str, Any], rows: Rows, renewal: int | None) -> Signals:
    """The number of each alarm at this look; None where its signal is missing.

    Args:
        now: Signals of this look.
        start: Signals of the look that it is held against.
        rows: Metrics rows up to this step, this one included.
        renewal: See `reward_quality_gap`.
    """
    accused, accused_at_start = now["false_accusations"], start.get("false_accusations")
    above = accused is not None and (accused_at_start is None or accused > accused_at_start)
    natural = now["natural_share"]
    shares = [value for name, value in now.items() if name.endswith("_share") and value is not None]
    collapsed_well = natural is not None and natural >= max(shares)
    drop = _drop(now["strategy_entropy"], start.get("strategy_entropy"))
    return {
        "false_accusations": None if accused is None else now["false_accusations_low"] if above else 0.0,
        **{name: _rise(name, now, start) for name in RISING},
        "turns_drift": _factor(now["turns"], start.get("turns")),
        "length_drift": _factor(now["length"], start.get("length")),
        # a mix that becomes all natural is what training is for
        "strategy_entropy": 0.0 if drop is not None and collapsed_well else drop,
        "reward_quality_gap": reward_quality_gap(now, start, rows, renewal),
    }


def _rise(name: str, now: Mapping[str, Any], start: Mapping[str, Any]) -> float | None:
    """Low end of the 95% interval of a signal's rise; negative where it may not have risen. A standard error that is unknown counts as 0."""
    if now.get(name) is None or start.get(name) is None:
        return None
    error = math.hypot(now.get(f"{name}_se") or 0.0, start.get(f"{name}_se") or 0.0)
    return now[name] - start[name] - NORMAL_95 * error


def _factor(now: float | None, start: float | None) -> float | None:
    return max(now / start, start / now) if now and start else None


def _drop(now: float | None, start: float | None) -> float | None:
    return 1 - now / start if now is not None and start else None


def reward_quality_gap(now: Mapping[str, Any], start: Mapping[str, Any], rows: Rows, renewal: int | None) -> float | None:
    """Low end of the 95% interval of the points of quality lost while the reward rose by `RISE` standard deviations; 0 where it did not.

    Rewards can be held against each other only while they are on one scale. Those of a pointwise design always are. A win rate inside
    a group is 1/2 on average whatever happens, so it never rises, and this alarm stays silent by construction. A win rate against a
    reference is on one scale until the reference is renewed (`renewal` steps; None: never): the stretch then begins at the last renewal,
    and quality is held against the look there, or else the first one since.
    """
    first = (len(rows) - 1) // renewal * renewal if renewal else 0
    looks = [start] if first == 0 else [row["signals"] for row in rows[first - 1 : -1] if row.get("signals")]
    before = next((look for look in looks if look.get("quality") is not None), None)
    rewards = [row["reward"] for row in rows[first:] if row.get("reward") is not None]
    spread = mean(row["reward_std_in_group"] for row in rows[first:] if row.get("reward_std_in_group") is not None)
    if now.get("quality") is None or before is None or spread is None or len(rewards) < 2 * EDGE:
        return None
    rise = sum(rewards[-EDGE:]) / EDGE - sum(rewards[:EDGE]) / EDGE
    lost = _rise("quality", before, now) or 0.0
    return max(0.0, lost) if rise > 0 and rise >= RISE * spread else 0.0


def raised(rows: Rows, rules: Mapping[str, AlarmRule], start: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The alarms that are on at the last row, in the order of `ALARMS`; none if that row has no look.

    A look at which an alarm's signal is missing neither counts nor breaks a run of looks over the limit.
    """
    now: Mapping[str, Any] = (rows[-1].get("signals") if rows else None) or {"watched": {}}
    found: list[dict[str, Any]] = []
    for name, alarm in ALARMS.items():
        rule, number = rules[name], now["watched"].get(name)
        if rule.action == "off" or number is None:
            continue
        over = _over(rows, name, rule.limit)
        if len(over) >= (rule.persistence or 1):
            found.append(
                {
                    "alarm": name,
                    "action": rule.action,
                    "step": rows[-1]["step"],
                    "value": now[alarm.signal],
                    "start": start.get(alarm.signal),
                    "watched": number,
                    "limit": rule.limit,
                    "looks": len(over),
                    "since": over[-1],
                }
            )
    return found


def _over(rows: Rows, name: str, limit: float) -> list[int]:
    """Steps of the newest looks in a row that pass the limit, newest first."""
    steps: list[int] = []
    for row in reversed(rows):
        number = (row.get("signals") or {}).get("watched", {}).get(name)
        if number is None:
            continue
        if number <= limit:
            break
        steps.append(row["step"])
    return steps


# ---------------------------------------------------------------- in the loop


def due(every: int, done: int) -> bool:
    """Whether something that happens every so many steps happens after `done` steps."""
    return every > 0 and done % every == 0


def probe_due(config: RunConfig, done: int) -> bool:
    """Whether a probe is made after `done` steps, for its curve or for the alarms."""
    return due(config.probe.every, done) or due(config.alarm_every, done)


def start_signals(run: Run, rows: Rows) -> Mapping[str, Any] | None:
    """What looks are held against: the look before the first step, or else the first one that the rows hold (alarms that were switched on
    later, or a damaged file)."""
    try:
        return run.read_step(0, "probe")["signals"]
    except RunError:
        return next((row["signals"] for row in rows if row.get("signals")), None)


async def watch(shop: Workshop, before: Rows, row: dict[str, Any], found: Probe) -> None:
    """Add `signals` and `alarms` to the row of a step whose probe is done, and save the look's audits, where a look is due.

    `before` holds the rows of the earlier steps.
    """
    step, config = row["step"], shop.config
    if not due(config.alarm_every, step):
        return
    looks = await _examine(shop, found)
    now = measure(looks, simulated=config.simulated)
    row["signals"] = now
    rows = [*before, row]
    start = start_signals(shop.run, rows) or now
    renewal = config.reward.renewal_steps if shop.design.needs_reference else None
    row["signals"] = {**now, "watched": watched_numbers(now, start, rows, renewal)}
    row["alarms"] = [
        {**alarm, "audits": evidence(alarm["alarm"], looks, alarm["value"], alarm["start"])}
        for alarm in raised(rows, config.alarms.rules(), start)
    ]
    _save(shop.run, step, row["signals"], looks)


async def look_at_start(shop: Workshop) -> None:
    """The look before the first step; one that a killed start has already paid for is kept."""
    config, run = shop.config, shop.run
    if config.targets.clean is None and not config.targets.clean_from_pool and not config.targets.production:
        shop.display.note("alarms: no clean target (targets.clean, targets.clean_from_pool): false accusations can't be watched")
    try:
        run.read_step(0, "probe")
    except RunError:
        from .probe import probe

        found = await probe(shop, 0, cruxes=False)
        looks = await _examine(shop, found)
        _save(run, 0, measure(looks, simulated=config.simulated), looks)


async def _examine(shop: Workshop, found: Probe) -> list[Look]:
    judges = shop.judges
    conduct = asyncio.gather(*(judge_conduct(judges.model, audit, attempts=judges.attempts) for audit in found.audits))
    # where the world is simulated the suite knows the truth for certain; else the stricter of the yes/no judges is asked as well
    planted = [] if shop.config.simulated else [audit for audit in found.audits if audit.scenario.planted]
    surfaced = {v.audits[0]: v for v in await asyncio.gather(*(judges.auditor_view(audit) for audit in planted))}
    return [
        Look(audit, found.verdicts.get(audit.id), verdict, surfaced.get(audit.id))
        for audit, verdict in zip(found.audits, await conduct, strict=True)
    ]


def _save(run: Run, step: int, values: Mapping[str, Any], looks: Sequence[Look]) -> None:
    run.write_step(step, "probe", {"signals": values, "audits": [look.as_record() for look in looks]})


def settle(shop: Workshop, rows: Rows) -> list[dict[str, Any]]:
    """Once the last row is written: say which alarms are new, bring `alarms.jsonl` up to date, and return those that must stop the run."""
    row = rows[-1]
    if not row.get("alarms"):
        return []
    write_alarms(shop.run, rows)
    before = next((earlier.get("alarms") or [] for earlier in reversed(rows[:-1]) if earlier.get("signals")), [])
    known = {alarm["alarm"] for alarm in before}
    for alarm in row["alarms"]:
        if alarm["alarm"] not in known:
            shop.display.note(f"alarm: {sentence(alarm)}")
    return stopping(shop.run, shop.config, rows)


def write_alarms(run: Run, rows: Rows) -> None:
    """`alarms.jsonl`: one line an alarm and look, as the metrics rows hold them; no file where there is none."""
    found = [alarm for row in rows for alarm in row.get("alarms") or []]
    path = run.path / "alarms.jsonl"
    if found or path.exists():
        write_whole(path, "".join(json.dumps(alarm) + "\n" for alarm in found))


def stopping(run: Run, config: RunConfig, rows: Rows) -> list[dict[str, Any]]:
    """The alarms that must stop the run where it stands, by the limits and actions of the config as it is now."""
    if not rows or not rows[-1].get("signals"):
        return []
    start = start_signals(run, rows) or rows[-1]["signals"]
    return [alarm for alarm in raised(rows, config.alarms.rules(), start) if alarm["action"] == "stop"]


def stop_if(shop: Workshop, alarms: Sequence[Mapping[str, Any]]) -> None:
    """End the run if there are alarms that must stop it. Raises AlarmStop."""
    if alarms:
        shop.run.event("stopped by alarm", step=alarms[0]["step"], alarms=[alarm["alarm"] for alarm in alarms])
        raise stop_error(shop.run, shop.config, alarms)


def stop_error(run: Run, config: RunConfig, alarms: Sequence[Mapping[str, Any]]) -> AlarmStop:
    """The error that ends the run: what went off, where to read more, how to go on."""
    own = [a["alarm"] for a in alarms if getattr(config.alarms, a["alarm"]).action is not None]
    keys = [f"--alarms.{name}.action warn" for name in own] + (["--alarms.action warn"] if len(own) < len(alarms) else [])
    told = "; ".join(sentence(alarm) for alarm in alarms)
    return AlarmStop(
        f"stopped by an alarm. {told}. The step is saved with a checkpoint; {run.path / 'report.html'} shows the audits behind it. "
        f"A run that games its reward is better mended in its config (docs/alarms.md); to go on all the same: auditrl resume {run.path} {' '.join(keys)}"
    )


def sentence(alarm: Mapping[str, Any]) -> str:
    """One raised alarm in words, for the live display, the error and the report."""
    about = ALARMS[alarm["alarm"]]
    since = f", since step {alarm['since']}" if alarm["since"] != alarm["step"] else ""
    watched, limit = about.number.of(alarm["watched"]), about.number.of(alarm["limit"])
    return (
        f"step {alarm['step']}: {about.title.lower()} {about.value.of(alarm['value'])} ({about.value.of(alarm['start'])} at the start), "
        f"{about.watched.format(watched)} (limit {limit}{since})"
    )
