"""The shipped published numbers: readable, typed, and consistent with the formulas used here."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from importlib import resources

import pytest

from auditrl.analysis import published
from auditrl.errors import ConfigError

LOADERS: list[tuple[str, Callable[[], Sequence[object]], int]] = [
    ("frontier.csv", published.frontier, 12),
    ("configurations.csv", published.configurations, 40),
    ("refresh_sweep.csv", published.refresh_sweep, 4),
    ("dose_response.csv", published.dose_response, 4),
    ("transfer.csv", published.transfer, 34),
    ("detection.csv", published.detection, 14),
    ("susceptibility.csv", published.susceptibility, 15),
    ("persona_adoption.csv", published.persona_adoption, 14),
    ("persona_safety.csv", published.persona_safety, 6),
    ("crux_prediction.csv", published.crux_prediction, 8),
    ("correlations.csv", published.correlations, 5),
]


@pytest.mark.parametrize(("name", "load", "count"), LOADERS)
def test_every_cell_of_every_file_arrives(name: str, load: Callable[[], Sequence[object]], count: int) -> None:
    text = resources.files("auditrl.analysis").joinpath("published", name).read_text(encoding="utf-8")
    raw = list(csv.DictReader(text.splitlines()))
    rows = load()
    assert len(rows) == len(raw) == count
    for row, line in zip(rows, raw, strict=True):
        for key, cell in line.items():
            value = getattr(row, key)
            assert (value is None) if cell == "" else (str(value) == cell or float(value) == float(cell)), (name, key)


def test_every_shipped_file_has_a_loader() -> None:
    shipped = {p.name for p in resources.files("auditrl.analysis").joinpath("published").iterdir() if p.name.endswith(".csv")}
    assert shipped == {name for name, _, _ in LOADERS}


def test_composite_of_every_complete_row_is_the_plain_mean_within_rounding() -> None:
    disagreeing = published.composite_disagreements()
    assert not disagreeing, "\n".join(f"{d.file}: {d.label}: printed {d.printed}, computed {d.computed:.3f}" for d in disagreeing)
    complete = [row for row in (*published.frontier(), *published.configurations()) if row.complete]
    assert len(complete) == 12 + 38


def test_disagreements_are_listed_when_the_tolerance_is_too_small() -> None:
    found = published.composite_disagreements(tolerance=0.06)
    assert [(d.file, d.label, d.printed) for d in found] == [("configurations.csv", "intragroup 1/8, single-target, epoch 1", 39.5)]
    assert found[0].computed == pytest.approx(39.575)


def test_composite_wants_all_four() -> None:
    four = {"audit_quality": 40.0, "fp_calibration": 100.0, "production": 10.0, "realism": 50.0}
    assert published.composite(four) == 50
    with pytest.raises(ValueError, match="realism"):
        published.composite({k: v for k, v in four.items() if k != "realism"})
    with pytest.raises(ValueError, match="production"):
        published.composite(four | {"production": float("nan")})


def test_incomplete_rows_are_known_as_such() -> None:
    incomplete = [row.label for row in published.configurations() if not row.complete]
    assert incomplete == ["binary 0/8, single-target, epoch 3", "concerningness 0/8, production8-target, epoch 3"]


def test_labels_tell_rows_apart() -> None:
    for rows in (published.frontier(), published.configurations(), published.refresh_sweep()):
        labels = [row.label for row in rows]
        assert len(set(labels)) == len(labels)


def test_dose_response_repeats_the_configurations() -> None:
    for dose in published.dose_response():
        (row,) = [
            c
            for c in published.configurations()
            if (c.reward, c.epochs, c.calibration_eighths, c.targets) == (dose.reward, dose.epochs, dose.calibration_eighths, "single")
        ]
        assert (row.fp_calibration, row.composite) == (dose.fp_calibration, dose.composite)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,mean_score\nX,1\n", "columns are"),
        ("model,mean_score,adoption_rate_percent\nX,,3\n", "line 2, mean_score: empty cell"),
        ("model,mean_score,adoption_rate_percent\nX,1,2\nY,many,3\n", "line 3, mean_score: 'many' is not a number"),
    ],
)
def test_a_damaged_file_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        published.parse(published.PersonaAdoption, "persona_adoption.csv", text)
