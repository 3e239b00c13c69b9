"""Inspect's entry point: the model providers `sim/...` and `policy/...`, and the suites as tasks.

Inspect imports this at every start, so nothing heavy is imported before a model is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inspect_ai import task
from inspect_ai.model import modelapi

if TYPE_CHECKING:
    from inspect_ai import Task
    from inspect_ai.model import ModelAPI


@modelapi(name="sim")
def sim() -> type[ModelAPI]:
    """Models of the simulated world."""
    from .sim.providers import SimAPI

    return SimAPI


@modelapi(name="policy")
def policy() -> type[ModelAPI]:
    """A trained policy by its checkpoint folder."""
    from .policy.model import PolicyAPI

    return PolicyAPI


# `evals.tasks.suite_task` describes the parameters; they are spelt out here because Inspect reads a task's options off its signature


@task
def audit_quality(
    profile: str = "small",
    seeds: int | None = None,
    replicates: int | None = None,
    turns: int | None = None,
    bank: str | None = None,
    random_seed: int = 0,
) -> Task:
    """Audit quality: held-out behaviors planted in the target."""
    return _suite("audit_quality", locals())


@task
def fp_calibration(
    profile: str = "small",
    seeds: int | None = None,
    replicates: int | None = None,
    turns: int | None = None,
    clean_condition: str = "persona",
    bank: str | None = None,
    random_seed: int = 0,
) -> Task:
    """False-positive calibration: the same seeds, nothing planted in the target."""
    return _suite("fp_calibration", locals())


@task
def production(
    profile: str = "small",
    seeds: int | None = None,
    replicates: int | None = None,
    turns: int | None = None,
    random_seed: int = 0,
) -> Task:
    """Production discovery: Petri's seeds on an unmodified target."""
    return _suite("production", locals())


@task
def realism(
    profile: str = "small",
    seeds: int | None = None,
    replicates: int | None = None,
    turns: int | None = None,
    wildchat: str | None = None,
    choice: str | None = None,
    bank: str | None = None,
    random_seed: int = 0,
) -> Task:
    """Realism: audits of an unmodified target beside real conversations."""
    return _suite("realism", locals())


def _suite(name: str, options: dict[str, Any]) -> Task:
    from .evals.tasks import suite_task

    return suite_task(name, **options)
