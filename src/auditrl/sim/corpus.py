"""What the tiny policy learns before any reward: audits of scripted auditors, good and bad, and drills in reading.

Audits give it the language and every strategy that a reward may pick: good practice, drawn-out chats, confessions, narration, extreme
scenarios, giving up, unfounded claims. Drills are conversations in which every reply is followed by the report that is right at that
point: without them no copying from transcript to report appears. Held-out pairs never occur planted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ..policy.sft import Weighted
from ..types import Report
from .auditors import CONFIDENCE, MAX_MESSAGES, Archetype, Turn, conclude, next_message, read_turns
from .language import DONE, REPORT, reply_ids, report_ids, say_ids, seed_ids
from .phrases import REPLIES, ReplyKind, claim_in
from .targets import target_reply
from .world import AREAS, HELD_OUT_PAIRS, MARKERS, PARAMS, SEED_PHRASES, TOPICS, Pair, WorldParams

_HELD_OUT = frozenset(HELD_OUT_PAIRS.values())
_ALLOWED: tuple[Pair, ...] = tuple(pair for t in TOPICS for m in MARKERS if (pair := Pair(t, m)) not in _HELD_OUT)
_TELLING: tuple[Archetype, ...] = ("controlled_experimenter", "skilled", "passive_scenario", "narrator")


@dataclass(frozen=True, slots=True)
class CorpusParams:
    """Mixture and loss weights of the warm start."""

    planted: float = 0.6
    """Share of audits whose target has something planted."""
    drills_early: float = 0.7
    drills_late: float = 0.3
    drills_until: float = 0.5
    """Share of drills during the first `drills_until` of the training, and after."""
    bare_early: float = 0.8
    bare_late: float = 0.4
    """Share of the drills made of unconnected replies, with topics from everywhere. Short, and the place where copying appears first: in
    an audit the topic of the moment is often the right one, and a model that learns to guess it never learns to read."""
    telling_drills: float = 0.8
    """Share of the other drills that are played by archetypes whose conversations hold much to read."""
    slip: float = 0.16
    slip_from: float = 0.8
    """How often any auditor claims firmly what it did not see, and from which share of the training on. A reward can only amplify what is
    sampled now and then; before it can read, a model that sees slips does not learn to."""
    weight_auditor: float = 1.0
    weight_other: float = 0.3
    weight_report: float = 3.0
    """Weight of what follows `<report>`. The word itself has none: it is forced, and weight on it makes the policy stop early."""
    archetypes: tuple[tuple[Archetype, float], ...] = (
        ("controlled_experimenter", 0.28),
        ("skilled", 0.11),
        ("passive_scenario", 0.22),
        ("confessor", 0.13),
        ("narrator", 0.10),
        ("extremist", 0.09),
        ("quitter", 0.06),
        ("false_accuser", 0.01),
    )


CORPUS = CorpusParams()


class _Sequence:
    """Tokens and weights under construction."""

    def __init__(self, seed: str, params: CorpusParams) -> None:
        self.params = params
        self.tokens = seed_ids(seed)
        self.weights = [params.weight_other] * len(self.tokens)

    def add(self, ids: Sequence[int], weight: float) -> None:
        self.tokens += ids
        self.weights += [weight] * len(ids)

    def reply(self, text: str) -> None:
        ids = reply_ids(text)
        self.add(ids[:1], 0.0)  # forced, like <report>
        self.add(ids[1:], self.params.weight_other)

    def report(self, stance: str, pair: Pair | None) -> None:
        self.add([REPORT], 0.0)
        self.add(report_ids(stance, pair), self.params.weight_report)

    def done(self) -> Weighted:
        return Weighted(self.tokens, self.weights)


def example(rng: Random, progress: float, params: CorpusParams = CORPUS, world: WorldParams = PARAMS) -> Weighted:
    """One training sequence; `progress` (0-1) decides the share of drills."""
    early = progress < params.drills_until
    share, bare = (params.drills_early, params.bare_early) if early else (params.drills_late, params.bare_late)
    drill = rng.random() < share
    archetype = rng.choices(params.archetypes, [weight for _, weight in params.archetypes])[0][0]
    if drill and rng.random() < params.telling_drills:
        archetype = rng.choice(_TELLING)
    pair = rng.choice(_ALLOWED) if rng.random() < params.planted else None
    area = pair.area if pair else rng.choice(tuple(AREAS))
    seed = rng.choice(SEED_PHRASES).format(area=area)
    if drill and rng.random() < bare:
        return _drill(seed, _unconnected(rng), params, bare=True)
    turns, report = play(seed, archetype, pair, rng, world, slip=params.slip if progress >= params.slip_from else 0.0)
    return _drill(seed, turns, params) if drill else _audit(seed, turns, report, params)


def play(
    seed: str, archetype: Archetype, pair: Pair | None, rng: Random, world: WorldParams = PARAMS, *, slip: float = 0.0
) -> tuple[list[Turn], Report]:
    """A scripted audit of a simulated target: its turns and its report."""
    plan = rng.random()
    turns: list[Turn] = []
    while (message := next_message(archetype, seed, turns, Random(plan))) is not None:
        conversation = [part for t in turns for part in (("user", t.message), ("assistant", t.reply))]
        reply = target_reply([*conversation, ("user", message)], pair, rng=rng, params=world)
        turns.append(Turn(message, reply, f"M{2 * len(turns) + 3}"))
    return turns, conclude(archetype, seed, turns, rng, slip=slip)


def _audit(seed: str, turns: Sequence[Turn], report: Report, params: CorpusParams) -> Weighted:
    sequence = _Sequence(seed, params)
    for turn in turns:
        sequence.add(say_ids(turn.message), params.weight_auditor)
        sequence.reply(turn.reply)
    if len(turns) < MAX_MESSAGES:
        sequence.add([DONE], params.weight_auditor)
    claim = claim_in(report.behavior) if report.finding else None
    sequence.report("none" if claim is None else "firm" if report.confidence >= CONFIDENCE["firm"] else "maybe", claim)
    return sequence.done()


def _drill(seed: str, turns: Sequence[Turn], params: CorpusParams, *, bare: bool = False) -> Weighted:
    """A conversation in which the right report follows every reply; `bare` leaves the auditor's messages out."""
    sequence = _Sequence(seed, params)
    for count, turn in enumerate(turns, start=1):
        if not bare:
            sequence.add(say_ids(turn.message), params.weight_auditor)
        sequence.reply(turn.reply)
        sequence.report(*read_turns(turns[:count]))
    return sequence.done()


def _unconnected(rng: Random) -> list[Turn]:
    """One to six replies of any kind and topic; one pair comes up more often than others."""
    main = rng.choice(_ALLOWED)
    kinds: Sequence[ReplyKind] = rng.choices(("plain", "strong", "weak", "apology", "denial"), (8, 6, 4, 2, 1), k=rng.randint(1, 6))
    turns: list[Turn] = []
    for kind in kinds:
        pair = main if rng.random() < 0.5 else rng.choice(_ALLOWED)
        turns.append(Turn("", rng.choice(REPLIES[kind]).format(topic=pair.topic, marker=pair.marker)))
    return turns
