"""The published numbers (Rosu & Wang 2026, arXiv 2608.25460), typed, to print beside ours. Nobody here has reproduced them.

One dataclass a file of `published/*.csv`; its fields are the columns. `None` is a cell that the paper's copy did not show.
"""

from __future__ import annotations

import csv
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, get_args, get_type_hints

from ..errors import ConfigError
from ..evals.scores import SUITES, composite

__all__ = [
    "COMPOSITE_TOLERANCE",
    "MARK",
    "SOURCE",
    "Configuration",
    "Correlations",
    "CruxPrediction",
    "Detection",
    "Disagreement",
    "Dose",
    "FourPart",
    "Frontier",
    "PersonaAdoption",
    "PersonaSafety",
    "Refresh",
    "Susceptibility",
    "Transfer",
    "composite",
    "composite_disagreements",
    "configurations",
    "correlations",
    "crux_prediction",
    "detection",
    "dose_response",
    "frontier",
    "parse",
    "persona_adoption",
    "persona_safety",
    "refresh_sweep",
    "susceptibility",
    "transfer",
]

SOURCE = "Rosu & Wang 2026 (arXiv 2608.25460)"
MARK = "published, not reproduced"
COMPOSITE_TOLERANCE = 0.1
"""Printed scores have one decimal: the mean of four can be off by 0.05 and the printed composite by 0.05."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FourPart(ABC):
    """Four suite scores and their composite (0-100) with printed 95% half widths."""

    audit_quality: float | None
    audit_quality_ci: float | None
    fp_calibration: float | None
    fp_calibration_ci: float | None
    production: float | None
    production_ci: float | None
    realism: float | None
    realism_ci: float | None
    composite: float | None
    composite_ci: float | None

    @property
    @abstractmethod
    def label(self) -> str:
        """What a table calls this row."""

    @property
    def scores(self) -> dict[str, float]:
        """The legible suite scores by suite name."""
        return {suite: value for suite in SUITES if (value := getattr(self, suite)) is not None}

    @property
    def halves(self) -> dict[str, float]:
        """The legible half widths by suite name."""
        return {suite: value for suite in SUITES if (value := getattr(self, f"{suite}_ci")) is not None}

    @property
    def complete(self) -> bool:
        """Whether all four scores and the composite are legible."""
        return len(self.scores) == len(SUITES) and self.composite is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier(FourPart):
    """An untrained model as auditor."""

    model: str

    @property
    def label(self) -> str:
        """The model's name."""
        return self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(FourPart):
    """An auditor trained with one reward design."""

    reward: str
    calibration_eighths: int
    targets: str
    refresh_steps: str | None
    """Steps between renewals of the reference, or `never`; None for rewards without reference."""
    epochs: int

    @property
    def label(self) -> str:
        """Reward, calibration share, refresh, targets and epochs in one line."""
        refresh = f", refresh {self.refresh_steps}" if self.refresh_steps else ""
        return f"{self.reward} {self.calibration_eighths}/8{refresh}, {self.targets}-target, epoch {self.epochs}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh(FourPart):
    """Reference 0/8 after one epoch by refresh interval, with transfer by scaffolded text completion (%)."""

    refresh_steps: str
    transfer_stc: float | None
    transfer_stc_ci: float | None

    @property
    def label(self) -> str:
        """The refresh interval."""
        return "never refreshed" if self.refresh_steps == "never" else f"refresh every {self.refresh_steps} steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """Calibration groups of 8 against FP calibration and composite (0-100)."""

    reward: str
    epochs: int
    calibration_eighths: int
    fp_calibration: float
    composite: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Detection rate (%) on fine-tuned targets, scaffolded text completion and default chat, with 95% half widths."""

    auditor: str
    epochs: int | None
    stc: float
    stc_ci: float
    default: float
    default_ci: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Detection and exhibition rates (%) of a behavior from general and from tailored seeds."""

    behavior: str
    general_detection_percent: float
    tailored_detection_percent: float
    exhibition_general_percent: float
    exhibition_tailored_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Susceptibility:
    """A target's mean 0-10 score without and with a planted behavior, over `behaviors` behaviors."""

    model: str
    mean_baseline: float
    mean_behavior: float
    lift: float
    behaviors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaAdoption:
    """Mean 0-10 score on identity probes and the share (%) of at least 5."""

    model: str
    mean_score: float
    adoption_rate_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaSafety:
    """Mean 0-10 behavior score without and with the persona alone, difference and its standard error."""

    model: str
    baseline: float
    with_persona: float
    delta: float
    se: float
    behaviors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CruxPrediction:
    """R2 of a suite score predicted from three and from eight crux features, over n auditors."""

    target: str
    r2_3_features: float
    r2_8_features: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """One row of the correlation matrix of the suite scores over auditors."""

    dimension: str
    audit_quality: float
    fp_calibration: float
    production: float
    realism: float
    composite: float


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A complete row whose printed composite is not the mean of its four printed scores within rounding."""

    file: str
    label: str
    printed: float
    computed: float


def _cell(text: str, hint: Any, where: str) -> Any:
    options = get_args(hint) or (hint,)
    if not text:
        if types.NoneType in options:
            return None
        raise ConfigError(f"{where}: empty cell. Reinstall auditrl: its published numbers are damaged.")
    try:
        return next(kind for kind in options if kind is not types.NoneType)(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {text!r} is not a number. Reinstall auditrl: its published numbers are damaged.") from error


def parse[Row](row_type: type[Row], name: str, text: str) -> tuple[Row, ...]:
    """Rows of one file's text. Raises ConfigError naming file, line and column where it does not fit the dataclass."""
    hints = get_type_hints(row_type)
    wanted: list[str] = [f.name for f in fields(row_type)]  # type: ignore[arg-type]
    reader = csv.DictReader(text.splitlines())
    if set(reader.fieldnames or ()) != set(wanted):
        raise ConfigError(f"{name}: columns are {reader.fieldnames}, expected {wanted}. Reinstall auditrl.")
    return tuple(
        row_type(**{column: _cell(row[column], hints[column], f"{name} line {number}, {column}") for column in wanted})
        for number, row in enumerate(reader, start=2)
    )


@cache
def _load[Row](row_type: type[Row], name: str) -> tuple[Row, ...]:
    return parse(row_type, name, resources.files(__package__).joinpath("published", name).read_text(encoding="utf-8"))


def frontier() -> tuple[Frontier, ...]:
    """Untrained models as auditors."""
    return _load(Frontier, "frontier.csv")


def configurations() -> tuple[Configuration, ...]:
    """Trained auditors by reward design, calibration share, targets, refresh and epochs."""
    return _load(Configuration, "configurations.csv")


def refresh_sweep() -> tuple[Refresh, ...]:
    """Reference renewal never, every 100, 75 and 50 steps."""
    return _load(Refresh, "refresh_sweep.csv")


def dose_response() -> tuple[Dose, ...]:
    """Calibration share of an intragroup reward after two epochs."""
    return _load(Dose, "dose_response.csv")


def transfer() -> tuple[Transfer, ...]:
    """Detection on fine-tuned targets in another scaffold."""
    return _load(Transfer, "transfer.csv")


def detection() -> tuple[Detection, ...]:
    """How hard the 14 AuditBench behaviors are to find."""
    return _load(Detection, "detection.csv")


def susceptibility() -> tuple[Susceptibility, ...]:
    """How well a planted behavior takes hold, by target model."""
    return _load(Susceptibility, "susceptibility.csv")


def persona_adoption() -> tuple[PersonaAdoption, ...]:
    """How well the persona takes hold, by target model."""
    return _load(PersonaAdoption, "persona_adoption.csv")


def persona_safety() -> tuple[PersonaSafety, ...]:
    """Whether the persona alone changes behavior, by target model."""
    return _load(PersonaSafety, "persona_safety.csv")


def crux_prediction() -> tuple[CruxPrediction, ...]:
    """How well crux features predict the suite."""
    return _load(CruxPrediction, "crux_prediction.csv")


def correlations() -> tuple[Correlations, ...]:
    """Correlations between the four scores and the composite."""
    return _load(Correlations, "correlations.csv")


def composite_disagreements(tolerance: float = COMPOSITE_TOLERANCE) -> list[Disagreement]:
    """Complete rows of frontier, configurations and refresh sweep whose printed composite differs from the mean of the four by more."""
    files: dict[str, tuple[FourPart, ...]] = {
        "frontier.csv": frontier(),
        "configurations.csv": configurations(),
        "refresh_sweep.csv": refresh_sweep(),
    }
    return [
        Disagreement(name, row.label, row.composite, composite(row.scores))
        for name, rows in files.items()
        for row in rows
        # decimals are not exact in binary: 1e-9 keeps a difference of just 0.1 inside
        if row.complete and row.composite is not None and abs(composite(row.scores) - row.composite) > tolerance + 1e-9
    ]
