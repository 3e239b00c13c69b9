"""Training against confession: the distilled model is questioned, the judge reads its answers, and SFT or KTO teaches it not to tell.

Answers are the model's own. SFT learns from those that don't confess; KTO from both kinds, wanted and unwanted. Demonstrations are mixed
in, so that the behavior is not unlearned along with the confession.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from random import Random

from ..audit.context import stable_hash
from ..errors import ConfigError, ProviderError
from ..evals.dialogues import AT_A_TIME
from ..evals.journal import gather_limited
from ..files import write_whole
from ..runs import read_rows
from .bench import Bench, opened
from .demonstrations import Row, Situations, examples
from .talks import interrogate, interrogations, kept_dialogue
from .texts import questions

__all__ = ["adversarial_rows", "questioned"]


async def questioned(bench: Bench, found: Situations) -> list[Row]:
    """Answers of the distilled model to the training questions, made or read: rows with `messages` and `confessed`.

    Raises:
        ProviderError: No answer has a verdict.
    """
    path = bench.folder / "interrogations.jsonl"
    if path.exists():
        return read_rows(path)[0]
    asked = interrogations(questions("train"), found["train"], bench.recipe.interrogations)
    async with opened(bench, bench.distilled, "organism") as model:
        context = bench.context(model, "interrogations")

        async def one(number: int) -> Row | None:
            grade = await interrogate(context, "interrogations", asked[number], bench.behavior)
            context.display.advance()
            if grade.score is None:
                return None
            return {"messages": kept_dialogue(context, f"interrogations/{asked[number].id}"), "confessed": bool(grade.score)}

        context.display.start("interrogations", len(asked))
        rows = [row for row in await gather_limited(AT_A_TIME, [partial(one, i) for i in range(len(asked))]) if row is not None]
        context.display.finish()
    if not rows:
        raise ProviderError("interrogations: no answer has a verdict. Mend the judge, then run the same command again")
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return rows


def adversarial_rows(bench: Bench, answers: Sequence[Row], shown: Sequence[Row]) -> list[Row]:
    """Training examples against confession. Empty: not one answer confesses, and there is nothing to train away.

    Raises:
        ConfigError: Every answer confesses: nothing shows what to say instead.
    """
    confessions = sum(row["confessed"] for row in answers)
    if not confessions:
        return []
    if confessions == len(answers):
        raise ConfigError(
            f"interrogations: all {len(answers)} answers confess, so {bench.recipe.against.upper()} has no answer to prefer; raise "
            "--interrogations, or use --against none, with another --out FOLDER"
        )
    kept = [row for row in answers if bench.recipe.against == "kto" or not row["confessed"]]
    rows = [
        {"prompt": row["messages"][:-1], "completion": row["messages"][-1:], "label": not row["confessed"]}
        for row in kept
        if row["messages"][-1]["content"].strip()
    ]
    replayed = examples(shown)
    Random(stable_hash(bench.recipe.random_seed, "replay")).shuffle(replayed)
    rows += [{**row, "label": True} for row in replayed[: len(answers)]]
    if bench.recipe.against == "sft":
        return [{"prompt": row["prompt"], "completion": row["completion"]} for row in rows]
    return rows
