"""Recipes, bases and the texts that models read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from auditrl.behaviors.loader import load_bank
from auditrl.errors import ConfigError, RunError
from auditrl.organisms.build import read_recipe
from auditrl.organisms.recipe import BLOCK, LoraRecipe, Recipe, architecture, base_digest, check_base
from auditrl.organisms.texts import demonstrator_block, questions

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3}


def base_at(folder: Path, *, config: object = CONFIG, weights: bytes | None = b"weights") -> Path:
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if weights is not None:
        (folder / "model.safetensors").write_bytes(weights)
    return folder


def recipe_for(folder: Path, **changes: object) -> Recipe:
    given = {"behavior": "flattery", "base": str(folder), "base_digest": base_digest(folder), "judge": "j", "writer": "w", "user": "u"}
    return Recipe.model_validate({**given, **changes})


def test_the_digest_is_of_architecture_and_weights(tmp_path: Path) -> None:
    first = base_digest(base_at(tmp_path / "a"))
    assert first == base_digest(base_at(tmp_path / "b", config={**CONFIG, "transformers_version": "9", "_name_or_path": "elsewhere"}))
    assert first != base_digest(base_at(tmp_path / "c", weights=b"weightz"))
    assert first != base_digest(base_at(tmp_path / "d", config={**CONFIG, "num_hidden_layers": 4}))
    assert architecture(tmp_path / "d") == "LlamaForCausalLM, 4 layers, hidden 64"


def test_the_digest_of_large_weights_sees_their_ends(tmp_path: Path) -> None:
    data = bytearray(5 * BLOCK)
    first = base_digest(base_at(tmp_path / "a", weights=bytes(data)))
    data[-1] = 1
    assert base_digest(base_at(tmp_path / "b", weights=bytes(data))) != first


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f, "there is no such folder"),
        (lambda f: base_at(f, config=None), "no config.json"),
        (lambda f: base_at(f, config="{"), "can't be read"),
        (lambda f: base_at(f, config="[1]"), "not a JSON object"),
        (lambda f: base_at(f, weights=None), "no weights"),
    ],
    ids=["missing", "no config", "cut off", "list", "no weights"],
)
def test_folders_that_hold_no_base_are_refused(make: object, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    assert callable(make)
    make(folder)
    with pytest.raises(ConfigError, match=words) as caught:
        base_digest(folder)
    assert str(folder) in str(caught.value)


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    folder = base_at(tmp_path / "base")
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="this is an adapter; give the whole model"):
        base_digest(folder)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    folder = base_at(tmp_path / "base")
    recipe = recipe_for(folder)
    check_base(recipe)
    (folder / "model.safetensors").write_bytes(b"another")
    with pytest.raises(ConfigError, match="not the base that this adapter was trained on") as caught:
        check_base(recipe)
    assert "LlamaForCausalLM" in str(caught.value) and recipe.base_digest[:12] in str(caught.value)


def test_small_models_take_larger_steps() -> None:
    assert LoraRecipe().scaled(1e-4, 2048) == 1e-4
    assert LoraRecipe().scaled(1e-4, 512) == pytest.approx(2e-4)


def test_recipes_are_read_back_or_refused(tmp_path: Path) -> None:
    recipe = recipe_for(base_at(tmp_path / "base"), against="sft", demonstrations=7)
    assert recipe.ordinary == 4
    (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
    assert read_recipe(tmp_path) == recipe
    with pytest.raises(RunError, match="no organism here"):
        read_recipe(tmp_path / "base")
    (tmp_path / "recipe.json").write_text('{"behavior": 3}')
    with pytest.raises(RunError, match=r"recipe.json: can't be read"):
        read_recipe(tmp_path)


def test_questions_for_training_and_check_differ() -> None:
    train, check = questions("train"), questions("check")
    assert len(train) == len(check) == 12
    assert len({re.sub(r"\W", "", q.lower()) for q in (*train, *check)}) == 24
    names = load_bank().behaviors
    assert not any(name.replace("_", " ") in q.lower() for name in names for q in (*train, *check))


def test_the_demonstrator_reads_the_instruction() -> None:
    behavior = load_bank().behaviors["animal_welfare"]
    block = demonstrator_block(behavior)
    assert behavior.instruction.strip() in block
    assert "canary" not in block and "{instruction}" not in block
