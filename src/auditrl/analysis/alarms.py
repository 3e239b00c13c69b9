"""The alarms of a run in its report: what each one means, its numbers over the steps against the limit, and the audits behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..config import AlarmRule
from ..errors import RunError
from ..runs import Run
from ..train.monitor import ALARMS, sentence, start_signals
from ..types import Audit, Verdict
from .figures import Series, lines
from .report import NamedFigure, Section, ShowcaseAudit
from .tables import Column, Row, Table

_SIGNALS = (
    ("false_accusations", "false accusations", 100.0, 0),
    ("false_accusations_low", "at least", 100.0, 0),
    ("unfounded_claims", "claims", 100.0, 0),
    ("natural_share", "natural", 100.0, 0),
    ("narration_share", "narration", 100.0, 0),
    ("confrontation_share", "confrontation", 100.0, 0),
    ("extreme_share", "extreme", 100.0, 0),
    ("strategy_entropy", "entropy", 1.0, 2),
    ("turns", "turns", 1.0, 1),
    ("length", "characters", 1.0, 0),
    ("quality", "quality", 1.0, 0),
)
"""Signal, header, factor and decimals of the columns of the table of looks."""


@dataclass(frozen=True, slots=True)
class AlarmStory:
    """What the report tells: a sentence an alarm, the section, and the audits that it points to."""

    sentences: list[str]
    sections: list[Section]
    showcase: list[ShowcaseAudit]


def alarm_story(run: Run, rows: Sequence[Mapping[str, Any]]) -> AlarmStory:
    """Read from metrics rows and the saved looks; empty where the run was never looked at."""
    looks = [row for row in rows if row.get("signals")]
    if not looks:
        return AlarmStory([], [], [])
    went_off: list[Mapping[str, Any]] = [alarm for row in looks for alarm in row.get("alarms") or []]
    newest = {alarm["alarm"]: alarm for alarm in went_off}
    first = {alarm["alarm"]: alarm for alarm in reversed(went_off)}
    raised = sorted(newest.values(), key=itemgetter("step"))
    audits = _audits_behind(run, raised)
    section = Section(
        "Alarms",
        text=[
            "Every few steps the policy audits the same held-back scenarios, half of them on targets in which nothing is planted. An alarm "
            "goes off when its number passes its limit at several looks in a row.",
            *(f"{_told(alarm, first[alarm['alarm']])} {ALARMS[alarm['alarm']].meaning}" for alarm in raised),
            *(["No alarm went off."] if not raised else []),
        ],
        tables=[_state_table(looks, run.config.alarms.rules(), first), _looks_table(run, looks)],
        figures=[_figure(looks, alarm) for alarm in raised],
        audits=[item.audit.id for item in audits],
    )
    return AlarmStory([_told(alarm, first[alarm["alarm"]]) for alarm in raised], [section], audits)


def _told(newest: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """The newest state of an alarm, and when it first went off."""
    text = sentence(newest)
    went_off = f"first went off at step {first['step']}" if first["step"] != newest["step"] else "went off at this step"
    stopped = " and stopped the run" if newest["action"] == "stop" else ""
    return f"{text[0].upper()}{text[1:]}; {went_off}{stopped}."


def _audits_behind(run: Run, raised: Sequence[Mapping[str, Any]]) -> list[ShowcaseAudit]:
    """The audits that the alarms name, each once; a look whose file is gone or damaged shows none."""
    labels: dict[str, list[str]] = {}
    steps: dict[str, int] = {}
    for alarm in raised:
        for audit_id in alarm.get("audits") or []:
            labels.setdefault(audit_id, []).append(ALARMS[alarm["alarm"]].title.lower())
            steps[audit_id] = alarm["step"]
    records: dict[str, Mapping[str, Any]] = {}
    for step in sorted(set(steps.values())):
        try:
            records |= {record["audit"]["id"]: record for record in run.read_step(step, "probe")["audits"]}
        except RunError:
            continue
    return [
        ShowcaseAudit(
            label=f"alarm, step {steps[audit_id]}: {', '.join(names)}",
            audit=Audit.model_validate(records[audit_id]["audit"]),
            reward=None,
            verdicts=[Verdict.model_validate(v) for v in records[audit_id]["verdicts"]],
        )
        for audit_id, names in labels.items()
        if audit_id in records
    ]


def _state_table(looks: Sequence[Mapping[str, Any]], rules: Mapping[str, AlarmRule], first: Mapping[str, Mapping[str, Any]]) -> Table:
    """Every alarm at the last look: its number beside its limit."""
    columns = (
        Column("alarm", "alarm", text=True),
        Column("value", "last look"),
        Column("watched", "watched number", text=True),
        Column("limit", "limit"),
        Column("action", "action", text=True),
        Column("first", "first went off"),
    )
    last = looks[-1]["signals"]
    rows: list[Row] = []
    for name, about in ALARMS.items():
        number = last["watched"].get(name)
        watched = about.watched.format(about.number.of(number)) if number is not None else "not known"
        off = f"step {first[name]['step']}" if name in first else "\u2013"
        cells = (about.title, about.value.of(last.get(about.signal)), watched, about.number.of(rules[name].limit), rules[name].action, off)
        rows.append(Row(cells, strong=name in first))
    note = "Where few audits carry a number, the watched one is the low end of its 95% interval."
    return Table(f"Alarms after step {looks[-1]['step']}", columns, tuple(rows), (note,))


def _looks_table(run: Run, looks: Sequence[Mapping[str, Any]]) -> Table:
    """The signals of every look, the start first."""
    columns = (Column("look", "step", text=True), *(Column(key, header, digits) for key, header, _, digits in _SIGNALS))
    begin = start_signals(run, looks)
    named = [("start", begin)] if begin is not None and begin != looks[0]["signals"] else []
    named += [(str(row["step"]), row["signals"]) for row in looks]
    rows = tuple(
        Row((name, *(None if (value := signals.get(key)) is None else factor * value for key, _, factor, _ in _SIGNALS)))
        for name, signals in named
    )
    missing = sum(int(signals.get("conduct_missing") or 0) for _, signals in named)
    notes = ["Shares in %; quality 0\u2013100."] + ([f"{missing} audits without a verdict on their conduct, left out."] if missing else [])
    return Table("Looks at held-back scenarios", columns, rows, tuple(notes))


def _figure(looks: Sequence[Mapping[str, Any]], alarm: Mapping[str, Any]) -> NamedFigure:
    """The watched number of an alarm over the steps against its limit."""
    name, about = alarm["alarm"], ALARMS[alarm["alarm"]]
    points = [
        (row["step"], about.number.scale * row["signals"]["watched"][name])
        for row in looks
        if row["signals"]["watched"].get(name) is not None
    ]
    steps = [step for step, _ in points]
    limit = [about.number.scale * alarm["limit"]] * len(steps)
    words = about.watched.format("\u2026")
    series = [Series(words, steps, [value for _, value in points]), Series("limit", steps, limit, dashed=True)]
    unit = {100.0: "% or points of 100"}.get(about.number.scale, "")
    return NamedFigure(f"{about.title}: {words}, against its limit", lines(series, title=about.title, x="step", unit=unit))
