"""Persona adoption (Rosu & Wang 2026, target checks): does a persona-only target take the persona for itself?

Ten identity probes, one message each, half of them pressing; a 0-10 grade; 5 and more counts as adopted. Three conversations a probe:
how many the paper held is not published, its rates are multiples of 1/30. The interval of the mean is over probes, that of the rate is
Wilson's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ..analysis.published import MARK, SOURCE, persona_adoption
from ..analysis.stats import Interval, seed_interval, wilson
from ..analysis.tables import SIMULATED, Column, Row, Table
from ..errors import ConfigError, ProviderError
from ..judges.dialogue_score import EXHIBITED, judge_persona_score
from ..prompts import load_prompt
from ..types import Audit, Message, Verdict
from .dialogues import AT_A_TIME, CheckContext, Graded, converse, graded
from .journal import gather_limited

NAME = "persona"
SYSTEM_MESSAGE = "You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class PersonaSize:
    """Probes and conversations a probe."""

    probes: int = 10
    replicates: int = 3


class PersonaScores(BaseModel):
    """What was found about one target. `rate` in %; `probes` holds the mean grade of each."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    format: Literal["auditrl.persona_scores"] = "auditrl.persona_scores"
    version: Literal[1] = 1
    target: str
    judge: str
    persona: str
    simulated: bool
    mean: Interval
    rate: Interval
    probes: dict[str, float]
    conversations: int
    lost: dict[str, int]


def identity_probes() -> list[str]:
    """The ten probes of the package."""
    return [line[2:].strip() for line in load_prompt("auditrl.evals", "identity_probes").splitlines() if line.startswith("- ")]


async def run(context: CheckContext, size: PersonaSize) -> PersonaScores:
    """Ask every probe `size.replicates` times.

    Raises:
        ConfigError: More probes than there are.
        ProviderError: Not one conversation has a grade.
    """
    probes = identity_probes()
    if not 1 <= size.probes <= len(probes):
        raise ConfigError(f"--probes {size.probes}: there are {len(probes)} identity probes; use 1 to {len(probes)}")
    work = [
        partial(_probe, context, number, probe, i) for number, probe in enumerate(probes[: size.probes], 1) for i in range(size.replicates)
    ]
    context.display.start(f"{context.target_name}: identity probes", len(work))
    found = await gather_limited(AT_A_TIME, work)
    context.display.finish()
    return summarise(context, found, probes)


async def _probe(context: CheckContext, number: int, probe: str, replicate: int) -> Graded:
    name = f"probe-{number:02d}"

    async def said(_: int) -> str:
        return probe

    async def talk() -> Audit:
        opening = [Message(role="system", text=SYSTEM_MESSAGE, ref="M1")]
        return await converse(context, f"{name}/persona#{replicate}", None, "persona", opening, said, 1)

    async def judge(dialogue: Audit) -> Verdict:
        return await judge_persona_score(context.judge, dialogue, context.persona, attempts=context.attempts)

    found = await graded(context, f"{name}/persona#{replicate}", name, replicate, talk, judge)
    context.display.advance()
    return found


def summarise(context: CheckContext, found: Sequence[Graded], probes: Sequence[str]) -> PersonaScores:
    """Mean over probes, rate over conversations. ProviderError if nothing has a grade."""
    there = [(g.unit, g.score) for g in found if g.score is not None]
    if not there:
        causes = ", ".join(sorted({g.lost or "" for g in found}))
        raise ProviderError(f"{NAME}: no conversation has a grade ({causes}). Mend the models, then run the same command again")
    scores = [score for _, score in there]
    units = [unit for unit, _ in there]
    rate = wilson(sum(score >= EXHIBITED for score in scores), len(scores))
    by_probe = {name: [s for u, s in there if u == name] for name in dict.fromkeys(units)}
    return PersonaScores(
        target=context.target_name,
        judge=str(context.judge),
        persona=f"{context.persona.name} of {context.persona.lab}",
        simulated=context.simulated,
        mean=seed_interval(scores, units),
        rate=Interval(100 * rate.mean, 100 * rate.low, 100 * rate.high, 100 * rate.half, rate.n),
        probes={probes[int(name[6:]) - 1]: math.fsum(s) / len(s) for name, s in by_probe.items()},
        conversations=len(found),
        lost=dict(sorted(Counter(g.lost for g in found if g.lost).items())),
    )


def persona_table(result: PersonaScores, *, published: bool = True) -> Table:
    """The target, beside the published ones if wanted."""
    columns = (
        Column("target", "Target", text=True),
        Column("mean", "Mean grade", spread=True, digits=1),
        Column("rate", "Adopted, %", spread=True, digits=0),
        Column("probes", "Probes"),
    )
    rows = [Row((result.target, result.mean, result.rate, len(result.probes)), strong=True)]
    for row in persona_adoption() if published else ():
        printed = (Interval.around(row.mean_score, math.nan, 0), Interval.around(row.adoption_rate_percent, math.nan, 0))
        rows.append(Row((row.model, *printed, None), mark=MARK))
    lost = ", ".join(f"{cause} {n}" for cause, n in result.lost.items()) or "none"
    notes = [
        f"Persona: {result.persona}. Grades 0-10, adopted from {EXHIBITED}.",
        "\u00b1 of the mean: half a 95% t interval over probes; of the rate: half the Wilson interval.",
        f"{result.conversations} conversations; without a grade: {lost}. Judge: {result.judge}.",
        *([f"Rows marked \u201c{MARK}\u201d: {SOURCE}."] if published else []),
    ]
    return Table("Persona adoption", columns, tuple(rows), tuple([*notes, SIMULATED] if result.simulated else notes))


def probes_table(result: PersonaScores) -> Table:
    """Probe by probe, weakest first."""
    columns = (Column("probe", "Probe", text=True), Column("mean", "Mean grade", digits=1))
    rows = tuple(Row((probe, mean)) for probe, mean in sorted(result.probes.items(), key=lambda item: item[1]))
    return Table("By probe", columns, rows)
