"""Situations and demonstrations: the training set of transcript distillation.

Situations come from the writer that also serves the target checks: of the behavior's own context, and of other behaviors' contexts for
ordinary talk. In a demonstration the helper (by default the base itself) reads the behavior in its system prompt, below the events that are
recorded; the judge then says whether it shows. What is kept for training is the conversation without that prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from ..audit.context import stable_hash
from ..audit.target import scrub, with_hidden_block
from ..errors import ConfigError, ProviderError, RunError
from ..evals.dialogues import AT_A_TIME, CheckContext, DialogueSize, Graded, Plan, UserPlan, plans_for
from ..evals.journal import gather_limited
from ..files import write_whole
from ..judges.dialogue_score import EXHIBITED
from ..runs import read_rows
from ..types import Behavior
from .bench import Bench, opened
from .talks import everyday, kept_dialogue
from .texts import demonstrator_block

if TYPE_CHECKING:
    from inspect_ai.model import Model

__all__ = ["Row", "Situations", "demonstrations", "examples", "read_situations", "situations"]

FORMAT = 1
MIN_SHARE = 0.1
"""Share of the demonstrations that must show the behavior: below, the helper can't play it and the rest would teach little."""
OTHERS = 8
"""Other behaviors whose contexts ordinary conversations come from, for training and as many others for the check."""

Row = dict[str, Any]
Situations = dict[str, list[Plan]]
"""`train` and `check`: the behavior's own context; `ordinary_train` and `ordinary_check`: other contexts. No plan stands in two."""


# ---------------------------------------------------------------- situations


async def situations(bench: Bench) -> Situations:
    """Write the situations, or read them.

    Raises:
        ProviderError: The writer gave none of the behavior's context.
    """
    path = bench.folder / "situations.json"
    if path.exists():
        return read_situations(path, bench)
    behavior, count = bench.behavior, bench.recipe.situations
    context = bench.context(bench.judge, behavior.name)
    own, _ = await plans_for(context, [behavior], DialogueSize(ideas=count + max(1, count // 2)))
    if len(own) < 2:
        raise ProviderError(
            f"writer: {len(own)} situations for {behavior.name} could be read, two are needed (training and check); "
            "name another --writer, then run the same command again"
        )
    ideas = max(1, count // OTHERS)
    train, check = _others(bench)
    rest = {key: (await plans_for(context, chosen, DialogueSize(ideas=ideas)))[0] for key, chosen in (("train", train), ("check", check))}
    if not rest["train"] or not rest["check"]:
        raise ProviderError("writer: no ordinary situation could be read; name another --writer, then run the same command again")
    # a writer that gave too few takes from the training
    split = min(count, len(own) - max(1, len(own) // 3))
    found: Situations = {"train": own[:split], "check": own[split:], "ordinary_train": rest["train"], "ordinary_check": rest["check"]}
    rows = {key: [{"id": p.id, "behavior": p.behavior.name, "plan": p.plan.model_dump()} for p in plans] for key, plans in found.items()}
    write_whole(path, json.dumps({"format": FORMAT, **rows}, indent=1, ensure_ascii=False))
    return found


def _others(bench: Bench) -> tuple[list[Behavior], list[Behavior]]:
    """Behaviors for ordinary talk: with a context of their own that needs no tools. Training and check share none."""
    names = sorted(n for n, b in bench.bank.behaviors.items() if n != bench.recipe.behavior and not b.always_on and not b.needs_tools)
    Random(stable_hash(bench.recipe.random_seed, "others", bench.recipe.behavior)).shuffle(names)
    chosen = [bench.bank.behaviors[name] for name in names[: 2 * OTHERS]]
    if len(chosen) < 2:
        raise ConfigError("the bank has fewer than two other behaviors for ordinary situations; use --bank together with the packaged bank")
    half = len(chosen) // 2
    return chosen[:half], chosen[half:]


def read_situations(path: Path, bench: Bench) -> Situations:
    """What `situations` wrote. RunError names the file."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        return {
            key: [Plan(row["id"], bench.bank.behavior(row["behavior"]), UserPlan.model_validate(row["plan"])) for row in value[key]]
            for key in ("train", "check", "ordinary_train", "ordinary_check")
        }
    except FileNotFoundError:
        raise RunError(
            f"{path}: missing; this folder holds no organism, or its build has not begun: run `auditrl organisms build`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: can't be read ({type(error).__name__}: {error}); build into another folder with --out") from None


# ---------------------------------------------------------------- demonstrations


async def demonstrations(bench: Bench, found: Situations) -> list[Row]:
    """Conversations to learn from, made or read: rows with `kind` (`shown`, `ordinary`) and `messages`. The hidden text is in none.

    Raises:
        ConfigError: Too few demonstrations show the behavior; the message gives the rate.
        ProviderError: Not one of them has a grade.
    """
    path = bench.folder / "demonstrations.jsonl"
    if path.exists():
        return read_rows(path)[0]
    recipe, behavior = bench.recipe, bench.behavior
    block = demonstrator_block(behavior)
    async with opened(bench, bench.base, "base") as base:
        helper = with_hidden_block(bench.helper or base, block)
        shown, rate = await _shown(bench, helper, found["train"], block)
        # an always-on behavior has no ordinary talk: its contrast would unteach it
        ordinary = [] if behavior.always_on else await _ordinary(bench, base, found["ordinary_train"])
    rows = [*shown, *ordinary]
    bench.journal.add("shown", {"rate": rate, "kept": len(shown), "held": recipe.demonstrations, "ordinary": len(ordinary)})
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return rows


async def _shown(bench: Bench, helper: Model, plans: Sequence[Plan], block: str) -> tuple[list[Row], float]:
    recipe = bench.recipe
    context = bench.context(helper, "demonstrations")
    units = [(plans[i % len(plans)], i // len(plans)) for i in range(recipe.demonstrations)]
    grades = await _held(context, "demonstrations", units, bench)
    scored = [grade for grade in grades if grade.score is not None]
    if not scored:
        causes = ", ".join(sorted({grade.lost or "" for grade in grades}))
        raise ProviderError(f"demonstrations: no conversation has a grade ({causes}). Mend the models, then run the same command again")
    telling = [g for g in scored if g.score is not None and g.score >= EXHIBITED]
    rate = len(telling) / len(scored)
    if rate < MIN_SHARE:
        raise ConfigError(
            f"{recipe.behavior}: {len(telling)} of {len(scored)} demonstrations show the behavior ({100 * rate:.0f}%), "
            f"{100 * MIN_SHARE:.0f}% are needed; {recipe.helper or 'the base'} does not play it from its system prompt. "
            "Name a stronger model with --helper and another --out FOLDER"
        )
    rows = [_row("shown", kept_dialogue(context, f"demonstrations/{g.unit}#{g.replicate}")) for g in telling]
    # a helper that recites its system prompt must not teach it
    clean = [row for row in rows if all(m["role"] != "assistant" or scrub(m["content"], block) == m["content"] for m in row["messages"])]
    if not clean:
        raise ConfigError(
            f"{recipe.behavior}: every demonstration recites the system prompt; name another --helper and another --out FOLDER"
        )
    return clean, rate


async def _ordinary(bench: Bench, base: Model, plans: Sequence[Plan]) -> list[Row]:
    context = bench.context(with_hidden_block(base, None), "ordinary conversations")
    units = [(plans[i % len(plans)], i // len(plans)) for i in range(bench.recipe.ordinary)]
    grades = await _held(context, "ordinary", units, bench)
    # what shows the behavior by itself is no contrast to it
    kept = [g for g in grades if g.score is not None and g.score < EXHIBITED]
    return [_row("ordinary", kept_dialogue(context, f"ordinary/{g.unit}#{g.replicate}")) for g in kept]


async def _held(context: CheckContext, stage: str, units: Sequence[tuple[Plan, int]], bench: Bench) -> list[Graded]:
    async def one(plan: Plan, replicate: int) -> Graded:
        grade = await everyday(context, stage, plan, bench.behavior, replicate, bench.recipe.turns)
        context.display.advance()
        return grade

    context.display.start(context.target_name, len(units))
    grades = await gather_limited(AT_A_TIME, [partial(one, plan, replicate) for plan, replicate in units])
    context.display.finish()
    return grades


def _row(kind: str, messages: list[dict[str, str]]) -> Row:
    return {"kind": kind, "messages": messages}


def examples(rows: Sequence[Row]) -> list[Row]:
    """One training example an answer: `prompt` (the messages before it) and `completion`."""
    return [
        {"prompt": row["messages"][:place], "completion": [message]}
        for row in rows
        for place, message in enumerate(row["messages"])
        if message["role"] == "assistant" and message["content"].strip()
    ]
