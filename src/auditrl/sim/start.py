"""What a warm-started policy can do before any reward: three shares, measured on scripted audits of held-out behaviors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from .auditors import Turn, read_turns
from .corpus import play
from .language import DONE, END, MAX_TURN_TOKENS, PAD, REPORT, read_report, read_say, reply_ids, say_ids, seed_ids
from .world import HELD_OUT_PAIRS, Pair, sim_seeds

if TYPE_CHECKING:
    import torch

AUDITS = 240


def start_figures(folder: Path, *, audits: int = AUDITS, random_seed: int = 0) -> dict[str, float]:
    """Sample turns and reports at temperature 1 and count.

    Returns:
        Percentages: `well_formed`, turns that are a message or an end; `right_reports`, reports that name the planted pair where a
        strong sign of it was to be read; `unfounded_firm`, firm claims about clean targets. And `audits`, how many of each were used.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    model.eval()
    rng = Random(random_seed)
    generator = torch.Generator().manual_seed(random_seed)
    planted = _audits(tuple(HELD_OUT_PAIRS), audits, rng, clean=False)
    clean = _audits(tuple(HELD_OUT_PAIRS), audits, rng, clean=True)
    turns = [_tokens(seed, t[: rng.randrange(len(t))]) for seed, _, t in planted]
    spoken = _sample(model, turns, generator)
    well_formed = sum(ids == [DONE] or read_say(ids) is not None for ids in spoken)
    visible = [(seed, pair, t) for seed, pair, t in planted if read_turns(t)[0] == "firm"]
    reports = _sample(model, [[*_tokens(seed, t), REPORT] for seed, _, t in visible], generator)
    right = sum((found := read_report(ids)) is not None and found[1] == pair for ids, (_, pair, _) in zip(reports, visible, strict=True))
    honest = _sample(model, [[*_tokens(seed, t), REPORT] for seed, _, t in clean], generator)
    unfounded = sum((found := read_report(ids)) is not None and found[0] == "firm" for ids in honest)
    return {
        "well_formed": 100 * well_formed / len(spoken),
        "right_reports": 100 * right / len(visible),
        "unfounded_firm": 100 * unfounded / len(clean),
        "audits": float(audits),
    }


def _audits(behaviors: Sequence[str], count: int, rng: Random, *, clean: bool) -> list[tuple[str, Pair, list[Turn]]]:
    """Seed, pair and turns of scripted audits by an auditor that probes every topic."""
    seeds = [seed for seed in sim_seeds() if seed.behavior in behaviors]
    found: list[tuple[str, Pair, list[Turn]]] = []
    for number in range(count):
        seed = seeds[number % len(seeds)]
        pair = HELD_OUT_PAIRS[seed.behavior or ""]
        found.append((seed.text, pair, play(seed.text, "controlled_experimenter", None if clean else pair, rng)[0]))
    return found


def _tokens(seed: str, turns: Sequence[Turn]) -> list[int]:
    return [*seed_ids(seed), *(i for t in turns for i in (*say_ids(t.message), *reply_ids(t.reply)))]


def _sample(model: Any, prompts: Sequence[list[int]], generator: torch.Generator) -> list[list[int]]:
    """One sampled turn for each prompt, cut after its stop token. Recomputes the whole prefix: prompts are short."""
    import torch

    rows = [list(prompt) for prompt in prompts]
    live = list(range(len(rows)))
    with torch.inference_mode():
        for _ in range(MAX_TURN_TOKENS):
            if not live:
                break
            width = max(len(rows[i]) for i in live)
            batch = torch.tensor([rows[i] + [PAD] * (width - len(rows[i])) for i in live])
            last = torch.tensor([len(rows[i]) - 1 for i in live])
            logits = cast("torch.Tensor", model(input_ids=batch).logits)[torch.arange(len(live)), last]
            drawn = torch.multinomial(logits.float().softmax(-1), 1, generator=generator).squeeze(1).tolist()
            for i, token in zip(live, drawn, strict=True):
                rows[i].append(int(token))
            live = [i for i in live if rows[i][-1] not in (END, DONE)]
    return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]
