"""The policy that ships with the package: small, of this vocabulary, and able to speak and to read."""

from __future__ import annotations

import pytest

from auditrl.sim.language import SimRenderer
from auditrl.sim.start import start_figures
from auditrl.sim.tiny import SHIPPED


def test_the_shipped_start_is_small_and_fits_the_language() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2_000_000
    assert isinstance(SimRenderer.for_folder(SHIPPED), SimRenderer)
    assert (SHIPPED / "README.md").read_text(encoding="utf-8").count("auditrl warmstart") >= 1


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    return start_figures(SHIPPED, audits=80, random_seed=5)


@pytest.mark.parametrize(("name", "low", "high"), [("well_formed", 97, 100), ("right_reports", 70, 100), ("unfounded_firm", 1, 12)])
def test_what_the_shipped_start_can_do(figures: dict[str, float], name: str, low: float, high: float) -> None:
    assert low <= figures[name] <= high
