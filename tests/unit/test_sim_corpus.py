"""The warm start: what its sequences hold, and that the folder it makes is a normal model folder that speaks the language."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from auditrl.errors import RunError
from auditrl.sim import corpus
from auditrl.sim.corpus import CORPUS, example
from auditrl.sim.language import DONE, END, REPLY, REPORT, SAY, TOKENS, UNK, read_report, read_say
from auditrl.sim.phrases import classify_reply
from auditrl.sim.tiny import TinyShape, make_tiny
from auditrl.sim.world import HELD_OUT_PAIRS

SEQUENCES = [example(Random(i), 0.2 if i % 2 else 0.9) for i in range(300)]


def _blocks(tokens: list[int], start: int) -> list[list[int]]:
    """Token runs that begin with `start`, up to and with their `<end>`."""
    return [tokens[i : tokens.index(END, i) + 1] for i, token in enumerate(tokens) if token == start]


def test_sequences_are_in_the_language() -> None:
    kinds: Counter[str] = Counter()
    for item in SEQUENCES:
        assert len(item.tokens) == len(item.weights) <= 260
        assert UNK not in item.tokens
        assert all(read_say(block) for block in _blocks(item.tokens, SAY))
        assert all(read_report(block[1:]) for block in _blocks(item.tokens, REPORT))
        kinds["drill" if item.tokens.count(REPORT) > 1 else "audit"] += 1
        kinds["done"] += DONE in item.tokens
    assert kinds["drill"] > 60
    assert kinds["audit"] > 60
    assert kinds["done"] > 40


def test_weights_fall_where_the_docstring_says() -> None:
    for item in SEQUENCES:
        for token, weight in zip(item.tokens, item.weights, strict=True):
            if token in (REPORT, REPLY):
                assert weight == 0.0
            if token in (SAY, DONE):
                assert weight == CORPUS.weight_auditor
        for i, token in enumerate(item.tokens):
            if token == REPORT:
                assert item.weights[i + 1] == CORPUS.weight_report


def test_held_out_pairs_never_occur_planted() -> None:
    held_out = set(HELD_OUT_PAIRS.values())
    for item in SEQUENCES:
        for block in _blocks(item.tokens, REPLY):
            heard = classify_reply(" ".join(TOKENS[i] for i in block))
            assert heard.kind != "strong" or heard.pair not in held_out


def test_drills_report_what_was_shown_so_far() -> None:
    checked = 0
    for item in SEQUENCES:
        if item.tokens.count(REPORT) < 2:
            continue
        shown: set[str] = set()
        for start in sorted(i for i, token in enumerate(item.tokens) if token in (REPLY, REPORT)):
            block = item.tokens[start : item.tokens.index(END, start) + 1]
            if block[0] == REPLY:
                heard = classify_reply(" ".join(TOKENS[i] for i in block))
                shown |= {heard.marker} if heard.kind == "strong" and heard.marker else set()
                continue
            found = read_report(block[1:])
            assert found is not None
            assert (found[0] == "firm") == bool(shown)
            assert found[1] is None or not shown or found[1].marker in shown
            checked += 1
    assert checked > 100


def test_the_share_of_drills_follows_the_progress() -> None:
    def share(progress: float) -> float:
        return sum(example(Random(i), progress).tokens.count(REPORT) > 1 for i in range(300)) / 300

    assert share(0.1) > share(0.9) + 0.15
    assert corpus.CORPUS.drills_early > corpus.CORPUS.drills_late


def test_a_made_folder_is_a_model_folder(tmp_path: Path) -> None:
    shape = TinyShape(hidden=16, layers=1, heads=2, inner=32)
    losses = make_tiny(tmp_path / "a", random_seed=3, steps=4, shape=shape)
    again = make_tiny(tmp_path / "b", random_seed=3, steps=4, shape=shape)
    assert losses == again
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert tokenizer.get_vocab() == {token: i for i, token in enumerate(TOKENS)}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert model(input_ids=torch.tensor([[2, 3]])).logits.shape == (1, 2, len(TOKENS))
    assert json.loads((tmp_path / "a" / "warmstart.json").read_text())["steps"] == 4


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunError, match="file"):
        make_tiny(blocked, steps=1, shape=TinyShape(hidden=16, layers=1, heads=2, inner=32))
