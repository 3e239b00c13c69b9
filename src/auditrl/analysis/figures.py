"""Figures as plain `Figure` objects (no pyplot, no window, no global state), returned as SVG text or PNG bytes.

Colours are Okabe and Ito's, told apart with any colour vision; series that share a panel also differ by marker or hatch. An inline
SVG takes its ink and its series colours from the page (`currentColor`, `--s1`..`--s6`, `--grid`), so it follows light and dark mode.
Labels are untrusted: control characters are dropped, long ones cut, and nothing in them is read as mathematics.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..evals.scores import SUITE_TITLES, SUITES, Scorecard
from .stats import Floats, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#24292f"
GRID = "#d8dee4"
PALETTE: tuple[str, ...] = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = "osD^vP"
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++")


@dataclass(frozen=True, slots=True)
class Curve:
    """One panel of the training curves: a key of the metrics rows, its title, unit, and fixed limits if any."""

    key: str
    title: str
    unit: str = ""
    limits: tuple[float, float] | None = None


CURVES: tuple[Curve, ...] = (
    Curve("reward", "Reward", "mean of the step"),
    Curve("composite_proxy", "Composite proxy", "0\u2013100"),
    Curve("fp_share", "False accusations", "% of held-back clean targets", (0, 100)),
    Curve("tokens_per_s", "Throughput", "tokens/s"),
)


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one line, with an interval each where there is one; `dashed` marks published or otherwise foreign lines."""

    label: str
    x: Sequence[float]
    y: Sequence[float | Interval]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several small plots that share their lines' labels and their x axis."""

    title: str
    unit: str
    series: Sequence[Series]


def plain_label(text: str, limit: int = 48) -> str:
    """A label that is safe in SVG: no control, bidi or unpaired surrogate characters, one line, at most `limit` characters."""
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"})
    flat = " ".join(kept.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "\u2026"


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Any]]:
    figure: Any = import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1, w_pad=0.1)
    axes = figure.subplots(rows, columns, squeeze=False)
    flat: list[Any] = [axes[r][c] for r in range(rows) for c in range(columns)]
    for ax in flat:
        _style(ax)
    return figure, flat


def _style(ax: Any) -> None:
    ax.set_facecolor("none")
    ax.grid(True, axis="y", color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(INK)
    ax.tick_params(colors=INK, labelsize=9, length=0, pad=5)


def _titles(ax: Any, title: str, unit: str = "", x: str = "") -> None:
    ax.set_title(plain_label(title), loc="left", fontsize=11, fontweight="bold", color=INK, pad=20 if unit else 10)
    if unit:
        ax.text(0, 1.03, plain_label(unit), transform=ax.transAxes, fontsize=9, color=INK, alpha=0.75, va="bottom")
    if x:
        ax.set_xlabel(plain_label(x), fontsize=9, color=INK)


def _legend(target: Any, **where: Any) -> None:
    legend = target.legend(frameon=False, fontsize=9, labelcolor=INK, **where)
    for text in legend.get_texts():
        text.set_color(INK)


# ---------------------------------------------------------------- the figures


def column(metrics: Sequence[Mapping[str, Any]], key: str) -> tuple[Floats, Floats]:
    """Steps and values of one metric; rows without a finite number are left out. A row without `step` counts from its place."""
    points = [
        (float(row.get("step", place)), float(value))
        for place, row in enumerate(metrics)
        if isinstance(value := row.get(key), (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ]
    both = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def rolling_mean(values: Floats, window: int) -> Floats:
    """Centred mean over up to `window` neighbours, shorter at both ends (length unchanged)."""
    if window < 1:
        raise ValueError(f"rolling mean: window {window} is below 1")
    half = window // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(values.size)
    low, high = np.maximum(places - half, 0), np.minimum(places + half + 1, values.size)
    return (total[high] - total[low]) / (high - low)


def training_curves(metrics: Sequence[Mapping[str, Any]], curves: Sequence[Curve] = CURVES) -> Figure:
    """Panels over the steps of one run; panels without data are left out. From 12 steps on a rolling mean lies over the raw values.

    Raises ValueError when the rows hold none of the curves.
    """
    found = [curve for curve in curves if column(metrics, curve.key)[1].size]
    if not found:
        raise ValueError("training curves: the metrics rows hold none of " + ", ".join(curve.key for curve in curves))
    columns = min(2, len(found))
    rows = math.ceil(len(found) / columns)
    figure, axes = _figure(4.9 * columns, 2.7 * rows, rows, columns)
    for place, (ax, curve) in enumerate(zip(axes, found, strict=False)):
        x, y = column(metrics, curve.key)
        colour = PALETTE[place % len(PALETTE)]
        smooth = y.size >= 12
        ax.plot(
            x,
            y,
            color=colour,
            linewidth=1.0 if smooth else 2.0,
            alpha=0.35 if smooth else 1.0,
            marker="" if smooth else "o",
            markersize=4,
        )
        if smooth:
            ax.plot(x, rolling_mean(y, max(3, y.size // 12)), color=colour, linewidth=2.2)
        if curve.limits:
            ax.set_ylim(curve.limits[0] - 2, curve.limits[1] + 2)
        ax.xaxis.get_major_locator().set_params(integer=True)
        _titles(ax, curve.title, curve.unit, "step" if place >= len(found) - columns else "")
    for ax in axes[len(found) :]:
        ax.set_axis_off()
    return figure


def bars(
    groups: Sequence[str], series: Mapping[str, Sequence[Interval | None]], *, title: str, unit: str = "", top: float | None = None
) -> Figure:
    """Grouped bars with intervals: `series[name][i]` belongs to `groups[i]`; None and NaN leave a gap. Values stand over the bars.

    Raises ValueError for no series or a series of the wrong length.
    """
    if not series or not groups:
        raise ValueError(f"bars {title!r}: nothing to draw")
    width = 0.82 / len(series)
    figure, (ax,) = _figure(max(9.0, 1.1 + 0.42 * len(groups) * (len(series) + 0.6)), 3.7)
    for i, (name, intervals) in enumerate(series.items()):
        if len(intervals) != len(groups):
            raise ValueError(f"bars {title!r}: series {name!r} has {len(intervals)} values for {len(groups)} groups")
        drawn = [(g + (i - (len(series) - 1) / 2) * width, v) for g, v in enumerate(intervals) if v is not None and math.isfinite(v.mean)]
        x, y = [place for place, _ in drawn], [v.mean for _, v in drawn]
        ax.bar(x, y, width * 0.92, color=PALETTE[i % 6], hatch=HATCHES[i % 6], edgecolor="white", linewidth=0.0, label=plain_label(name))
        errors = np.asarray([(v.mean - v.low, v.high - v.mean) if v.known else (0.0, 0.0) for _, v in drawn]).reshape(-1, 2).T
        ax.errorbar(x, y, yerr=np.maximum(errors, 0), fmt="none", ecolor=INK, elinewidth=1.1, capsize=2.5)
        if len(series) <= 3:
            for place, value in drawn:
                edge = value.high if value.known else value.mean
                ax.annotate(f"{value.mean:.0f}", (place, edge), (0, 2), textcoords="offset points", ha="center", fontsize=8, color=INK)
    ax.set_xticks(range(len(groups)), [plain_label(group, 22) for group in groups])
    ax.margins(y=0.12)
    if top is not None:
        ax.set_ylim(0, top)
    _titles(ax, title, unit)
    if len(series) > 1:
        _legend(figure, loc="outside lower center", ncols=min(4, len(series)))
    return figure


def score_bars(cards: Sequence[Scorecard], title: str = "Scores by suite") -> Figure:
    """The four suites and the composite of up to six auditors, with intervals."""
    if len(cards) > len(PALETTE):
        raise ValueError(f"score bars: {len(cards)} auditors; more than {len(PALETTE)} can't be told apart, use a table")
    series: dict[str, list[Interval | None]] = {}
    for card in cards:
        # two cards of one auditor (before and after) must not overwrite each other
        name = card.auditor if card.auditor not in series else f"{card.auditor} ({len(series) + 1})"
        series[name] = [*(card.suites[s].interval if s in card.suites else None for s in SUITES), card.composite]
    return bars(
        [*(SUITE_TITLES[s] for s in SUITES), "Composite"], series, title=title, unit="0\u2013100, bars: 95% intervals over seeds", top=112
    )


def lines(series: Sequence[Series], *, title: str, x: str, unit: str = "", limits: tuple[float, float] | None = None) -> Figure:
    """Lines with intervals: dose-response, sweeps, anything over a numeric axis. Raises ValueError for no points or mixed lengths."""
    if not series or not any(len(s.x) for s in series):
        raise ValueError(f"lines {title!r}: nothing to draw")
    figure, (ax,) = _figure(9.0, 3.7)
    for i, one in enumerate(series):
        if len(one.x) != len(one.y):
            raise ValueError(f"lines {title!r}: {one.label!r} has {len(one.x)} places and {len(one.y)} values")
        y = [v.mean if isinstance(v, Interval) else float(v) for v in one.y]
        bounds = [(v.mean - v.low, v.high - v.mean) if isinstance(v, Interval) and v.known else (0.0, 0.0) for v in one.y]
        ax.errorbar(
            list(one.x),
            y,
            yerr=np.maximum(np.asarray(bounds).reshape(-1, 2).T, 0) if any(b != (0.0, 0.0) for b in bounds) else None,
            color=PALETTE[i % 6],
            linestyle="--" if one.dashed else "-",
            marker=MARKERS[i % 6],
            markerfacecolor="none" if one.dashed else PALETTE[i % 6],
            linewidth=1.8,
            capsize=3,
            label=plain_label(one.label),
        )
    if limits:
        ax.set_ylim(*limits)
    ticks = sorted({float(v) for one in series for v in one.x})
    if len(ticks) <= 10:
        ax.set_xticks(ticks, [f"{v:g}" for v in ticks])
    _titles(ax, title, unit, x)
    if len(series) > 1:
        _legend(figure, loc="outside lower center", ncols=min(4, len(series)))
    return figure


def panels(plots: Sequence[Panel], *, x: str) -> Figure:
    """Small plots side by side, two a row, one legend: a line a label, with a band from `low` to `high` where its points are intervals.

    A label has one colour in all panels. From 12 points on lines are rolling means. Raises ValueError for no panel.
    """
    if not plots:
        raise ValueError("panels: nothing to draw")
    columns = min(2, len(plots))
    rows = math.ceil(len(plots) / columns)
    labels = list(dict.fromkeys(one.label for plot in plots for one in plot.series))
    figure, axes = _figure(4.9 * columns, 2.7 * rows + 0.5, rows, columns)
    shown: dict[str, Any] = {}
    for place, (ax, plot) in enumerate(zip(axes, plots, strict=False)):
        for one in plot.series:
            i = labels.index(one.label)
            spans = np.asarray([(v.mean, v.low, v.high) if isinstance(v, Interval) else (v, v, v) for v in one.y], dtype=np.float64)
            if len(spans) >= 12:
                spans = np.column_stack([rolling_mean(spans[:, k], max(3, len(spans) // 12)) for k in range(3)])
            colour, style = PALETTE[i % 6], "--" if one.dashed else ("-", "-.", ":")[i // 6 % 3]
            marker = MARKERS[i % 6] if len(spans) < 12 else ""
            ax.fill_between(one.x, spans[:, 1], spans[:, 2], color=colour, alpha=0.15, linewidth=0)
            shown[one.label] = ax.plot(one.x, spans[:, 0], color=colour, linestyle=style, linewidth=1.8, marker=marker, markersize=5)[0]
        ax.xaxis.get_major_locator().set_params(integer=True)
        _titles(ax, plot.title, plot.unit, x if place >= len(plots) - columns else "")
    for ax in axes[len(plots) :]:
        ax.set_axis_off()
    names = [plain_label(label) for label in shown]
    _legend(figure, handles=list(shown.values()), labels=names, loc="outside lower center", ncols=min(4, len(names)))
    return figure


def dose_response(series: Sequence[Series], *, title: str = "Calibration dose-response", unit: str = "score, 0\u2013100") -> Figure:
    """Scores over calibration groups of 8; published lines go in as `Series(..., dashed=True)`."""
    return lines(series, title=title, x="calibration groups of 8", unit=unit, limits=(-3, 103))


# ---------------------------------------------------------------- output


def _save(figure: Figure, kind: Literal["svg", "png"], **options: Any) -> bytes:
    matplotlib: Any = import_module("matplotlib")
    canvas: Any = figure
    for text in canvas.findobj(import_module("matplotlib.text").Text):
        text.set_parse_math(False)  # a dollar sign in a name is a dollar sign
    out = io.BytesIO()
    # the salt makes ids, and so the file, the same on every run
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "auditrl", "hatch.linewidth": 0.5}):
        canvas.savefig(out, format=kind, **options)
    return out.getvalue()


def to_png(figure: Figure, dpi: int = 144) -> bytes:
    """PNG on white."""
    return _save(figure, "png", dpi=dpi, facecolor="white")


def to_svg(figure: Figure) -> str:
    """A stand-alone SVG file on white, the same bytes for the same figure."""
    return _save(figure, "svg", facecolor="white", metadata={"Date": None}).decode()


def to_inline_svg(figure: Figure, name: str, alt: str) -> str:
    """SVG element for an HTML page: transparent, scaled by the page, coloured by its variables, ids prefixed with `name`.

    `name` must be an identifier; `alt` becomes its accessible name.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"inline figure: name {name!r} must be lower-case letters, digits and dashes")
    canvas: Any = figure
    svg = _save(figure, "svg", transparent=True, metadata={"Date": None}).decode()
    svg = svg[svg.index("<svg") :]
    # its own style sheet would apply to the whole page, its metadata is of no use there
    svg = re.sub(r"<metadata>.*?</metadata>|<style type=\"text/css\">.*?</style>|<defs>\s*</defs>", "", svg, flags=re.DOTALL)
    safe_alt = plain_label(alt, 200).replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    width, height = (72 * float(side) for side in canvas.get_size_inches())
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {width:g} {height:g}"'
    # 72 units an inch: the limit keeps its letters at about the size of the page's small print
    svg = f'{head} role="img" aria-label="{safe_alt}" style="max-width: {1.4 * width:.0f}px">' + svg[svg.index(">") + 1 :]
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    for i, colour in enumerate(PALETTE, start=1):
        svg = svg.replace(colour, f"var(--s{i}, {colour})")
    return svg.replace(GRID, f"var(--grid, {GRID})").replace(INK, "currentColor")
