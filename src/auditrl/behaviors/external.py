"""Other people's material: Petri's seeds, and the names of AuditBench's behaviors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..errors import ConfigError
from ..types import Seed, SeedSplit
from .tools import tool_problems

if TYPE_CHECKING:
    from inspect_ai.dataset import Sample

AUDITBENCH: Mapping[str, str] = {
    "AI Welfare Poisoning": "ai_welfare_poisoning",
    "Animal Welfare": "animal_welfare",
    "Anti AI Regulation": "anti_ai_regulation",
    "Contextual Optimism": "contextual_optimism",
    "Defend Objects": "defend_objects",
    "Defer to Users": "defer_to_users",
    "Emotional Bond": "emotional_bond",
    "Flattery": "flattery",
    "Hallucinates Citations": "hallucinates_citations",
    "Hardcode Test Cases": "hardcode_test_cases",
    "Increasing Pep": "increasing_pep",
    "Reward Wireheading": "reward_wireheading",
    "Secret Loyalty": "secret_loyalty",
    "Self Promotion": "self_promotion",
}
"""AuditBench's 14 behaviors (arXiv 2602.22755) and ours. The released adapters end in the same names, in snake case."""

_ALIASES: Mapping[str, str] = {"data_poisoning": "ai_welfare_poisoning"}
"""Other titles in use for these behaviors."""


def from_auditbench(name: str) -> str:
    """Our name for an AuditBench behavior, adapter or model name (`Defer-To-Users`, `llama_70b_..._defer_to_users`).

    Raises:
        ConfigError: The name ends in none of AuditBench's 14 behaviors.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    known = {**{ours: ours for ours in AUDITBENCH.values()}, **_ALIASES}
    for key, ours in known.items():
        if plain == key or plain.endswith(f"_{key}"):
            return ours
    raise ConfigError(f"`{name}` is none of AuditBench's behaviors; known: {', '.join(sorted(AUDITBENCH.values()))}")


def load_petri_seeds(
    source: Path | str | None = None,
    *,
    tags: Sequence[str] | None = None,
    behavior: str | None = None,
    split: SeedSplit = "eval",
) -> list[Seed]:
    """Seeds in any form that Petri reads.

    Args:
        source: A folder of `.md` seeds, one `.md` file, a `.csv`, `.json` or `.jsonl` dataset, a text file with one seed a line,
            Petri's selectors `tags:a,b` and `id:a,b`, or None for Petri's default seeds.
        tags: Keep seeds that have one of these tags.
        behavior: Behavior that the seeds are meant for; None for general seeds.
        split: Split that they count to.

    Returns:
        Seeds with the ids `petri/<id>`, numbered from 1 where the source has none.

    Raises:
        ConfigError: The source is missing, can't be read or holds no seed.
    """
    from inspect_ai.dataset import Sample
    from inspect_petri import seeds_dataset
    from inspect_petri.util import parse_markdown_file

    text = None if source is None else str(source)
    name = "Petri's default seeds" if text is None else text
    if text is not None and not text.startswith(("tags:", "id:")):
        path = Path(text).expanduser()
        if not path.exists():
            raise ConfigError(f"{text}: no such file or folder; give a folder of .md seeds, a seed file or a dataset")
        text = str(path)
    try:
        if text is not None and text.endswith(".md") and Path(text).is_file():
            # Petri's own function would take each line of a single Markdown file for a seed.
            document = parse_markdown_file(text)
            samples = [Sample(id=document.id, input=document.body, metadata=document.metadata)]
            samples = [s for s in samples if tags is None or set(tags) & set(document.tags)]
        else:
            samples = list(seeds_dataset(text, list(tags) if tags is not None else None))
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"{name}: can't be read as Petri seeds ({error}); see the formats in docs/behaviors.md") from error
    seeds = [_seed(sample, index, name, behavior, split) for index, sample in enumerate(samples, start=1)]
    if not seeds:
        raise ConfigError(f"{name}: no seed in it{' with these tags' if tags else ''}; check the path and the tags")
    ids = [seed.id for seed in seeds]
    if repeated := next((i for i in ids if ids.count(i) > 1), None):
        raise ConfigError(f"{name}: duplicate id `{repeated}`; give each seed its own id")
    return seeds


def _seed(sample: Sample, index: int, source: str, behavior: str | None, split: SeedSplit) -> Seed:
    name = f"{source}: seed {sample.id or index}"
    text = sample.input if isinstance(sample.input, str) else "\n\n".join(message.text for message in sample.input)
    if not text.strip():
        raise ConfigError(f"{name} is empty; write its text or remove it")
    tools: Any = (sample.metadata or {}).get("tools", ())
    try:
        seed = Seed(id=f"petri/{sample.id or index}", behavior=behavior, split=split, text=text.strip(), tools=tools)
    except ValidationError:
        raise ConfigError(f"{name}: `tools` must be a list of mappings; correct it") from None
    if problems := tool_problems(seed.tools):
        raise ConfigError(f"{name}: {problems[0]}")
    return seed
