"""Does a description of a strategy give away what it was used on? Topics, behaviors and models must not decide what is called alike.

Lexical, without a model: words of the audit's behavior, of its seed, of what the report claims, and names of models. Words that any
strategy needs (question, target, evidence, ...) and words that many seeds of the bank share are free. A paraphrase of a topic that uses
none of its words passes; the describer's prompt forbids that too, and the check cannot.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from ...behaviors.leak import behavior_terms
from ...behaviors.loader import load_bank
from ...behaviors.similarity import stem, words
from ...types import Audit, Behavior

_COMMON = 0.5
"""Share of the bank's behaviors in whose seeds a word has to occur to say nothing about any of them."""
_SHORT_CLAIM = 4
"""Up to so many words a report's claim is a bare name of what was found."""
_MODELS = re.compile(
    r"\b(?:gpt|chatgpt|claude|gemini|gemma|llama|qwen|mistral|mixtral|deepseek|kimi|grok|phi|opus|sonnet|haiku|prism)[\w-]*(?:\.\w+)*"
    r"|\b(?:openai|anthropic|deepmind|google|meta ai|xai|alibaba|moonshot|nexus research)\b",
    re.IGNORECASE,
)
# what is said of any strategy: never a leak, whatever a seed or a behavior says
_STRATEGY = (
    "accept accuse admit aggressive alarm alternative ambiguous analysis answer appear approach artificial ask assert assistant assumption "
    "attempt audit auditor available avoid aware background baseline behave behavior believe bias blunt branch broad build calibrated careful "
    "casual challenge change check claim clarify clean clear coerce coherent compare comparison compliance concern conclude condition confess "
    "confidence confident confirm confront consistent contradict control controlled conversation correct counterfactual cover credible critical cue "
    "deceive deception deliberate demand deny depth describe design detail develop deviate difference different difficult direct discover "
    "discreet distinguish diverse early elicit emergency emotional end escalate establish evaluation evidence exaggerate examine example expect "
    "experiment explain explicit explore extend extreme fact fail false familiar feature few find finding firm first fixate follow follow-up force "
    "format frame free general generate gradual guess harmful help hidden high honest hypothesis idea identical identify ignore implausible "
    "independent indirect influence information initial innocuous instruction interaction interpret interview introduce invent investigate "
    "isolate issue keep late lead leading learn level line little long loop low manipulate manner matter mention message method minimal model moderate "
    "monologue move multiple narrate narrow natural neutral never normal note null observe open ordinary outcome passive patient pattern persist "
    "persona persuade plan plausible play poor position practice prefill premature press pressure pretend probe problem procedure produce prompt "
    "proof provoke purpose question quick quote rare rapport react realism realistic reason record refusal refuse reliable repeat repetition "
    "rephrase reply report request respond response rest result return reveal review revisit rewind rigid role rollback rule same sample scenario "
    "scope seek self-report sequence series set setting setup several shallow shift short show sign signal similar simple simulate single situation "
    "skill small sound specific stage statement stay step stop story strategy strong style subject subtle sudden suggest support surface suspect "
    "switch system systematic tactic target task tendency test theory thin threat time tool topic track transparent trial trust truth try turn "
    "two type uncertain unforced unfounded unusual urgent user variable variation vary verify version way weak whole wide without word "
    "work wrong "
    # what people are called and what all seeds have
    "people person professional company customer client team day week new one three four five last next second third good bad better much many "
    "make take give want need use look see say tell write think know get go come put let bring hold run start begin include offer handle real life"
)


@cache
def _strategy() -> frozenset[str]:
    return frozenset(stem(word) for word in words(_STRATEGY))


@cache
def _common() -> frozenset[str]:
    spoken: dict[str, set[str]] = defaultdict(set)
    for seed in load_bank().seeds:
        spoken[seed.behavior or ""] |= _stems([seed.text])
    counts = Counter(s for stems in spoken.values() for s in stems)
    return frozenset(s for s, count in counts.items() if count >= _COMMON * len(spoken))


def _stems(texts: Iterable[str]) -> set[str]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return {stem(word) for text in texts for word in words(text) if len(word) > 2 and word not in ENGLISH_STOP_WORDS}


def banned_stems(audit: Audit, behavior: Behavior | None) -> frozenset[str]:
    """Stems that a description of this audit must not hold.

    Args:
        behavior: The behavior that the audit's seed belongs to, planted or not; None where the bank doesn't know it.
    """
    scenario = audit.scenario
    around = _stems([scenario.seed.text, scenario.seed.setting])
    # what defines the behavior, or is claimed of it, is banned even where many seeds use the word
    core = _stems([(scenario.behavior or "").replace("_", " ")])
    if audit.report is not None:
        claimed = _stems([audit.report.behavior, *(p.behavior for p in audit.report.predictions)])
        around |= claimed
        core |= claimed if len(claimed) <= _SHORT_CLAIM else set()
    if behavior is not None:
        core |= _stems([behavior.title]) | behavior_terms(behavior).defining
        around |= _stems([behavior.activation, *behavior.activation_terms])
    return frozenset((core | (around - _common())) - _strategy())


def find_leaks(text: str, banned: frozenset[str] | Mapping[str, int]) -> list[str]:
    """Words of a text that give something away, in order, each once; names of models always do."""
    found = [match[0].lower() for match in _MODELS.finditer(text)]
    found += [word for word in words(text) if stem(word) in banned]
    return list(dict.fromkeys(found))


def without_leaks(text: str, banned: frozenset[str]) -> str:
    """The sentences that give nothing away; empty if there is none."""
    sentences = re.split(r"(?<=[.!?])\s+", text.strip())
    return " ".join(sentence for sentence in sentences if not find_leaks(sentence, banned))
