"""The composition of runs as stacked areas over the steps (Rosu & Wang 2026, strategy composition), or as bars where there are no steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..figures import GRID, HATCHES, INK, PALETTE, plain_label, rolling_mean
from ..stats import Floats
from .composition import CompositionRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTH_FROM = 12
_MOST = 12
"""Parts that are drawn on their own; further ones are summed up."""
_REST = "all others"


def composition_figure(rows: Sequence[CompositionRow], *, title: str = "Strategies over training") -> Figure:
    """A panel a run; from 12 steps on shares are means over neighbouring steps. Raises ValueError for no rows."""
    if not rows:
        raise ValueError("composition figure: nothing to draw")
    parts = _parts(rows)
    runs = list(dict.fromkeys(row.run for row in rows))
    columns, width, height = (min(2, len(runs)), 4.9, 3.1) if len(runs) <= 4 else (4, 3.6, 2.4)
    lines = math.ceil(len(runs) / columns)
    figure: Any = import_module("matplotlib.figure").Figure(figsize=(width * max(columns, 1.6), height * lines + 1.0), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1, w_pad=0.1)
    axes: Any = figure.subplots(lines, columns, squeeze=False).reshape(-1)
    handles: dict[str, Any] = {}
    for place, (ax, run) in enumerate(zip(axes, runs, strict=False)):
        _draw(ax, [row for row in rows if row.run == run], parts, handles)
        _style(ax)
        ax.set_title(plain_label(run if len(runs) > 1 else title), loc="left", fontsize=11, fontweight="bold", color=INK, pad=10)
        if place % columns == 0:
            ax.set_ylabel("% of audits", fontsize=9, color=INK)
    for ax in axes[len(runs) :]:
        ax.set_axis_off()
    legend = figure.legend(
        list(handles.values()),
        [plain_label(p, 60) for p in handles],
        loc="outside lower center",
        ncols=columns if len(runs) > 4 else 2,
        frameon=False,
        fontsize=9,
    )
    for text in legend.get_texts():
        text.set_color(INK)
    return figure


def _parts(rows: Sequence[CompositionRow]) -> list[str]:
    """Parts in the order of the rows; of very many the most frequent ones."""
    found = list(dict.fromkeys(row.part for row in rows))
    if len(found) <= _MOST:
        return found
    total = {part: sum(row.count for row in rows if row.part == part) for part in found}
    kept = set(sorted(found, key=lambda part: -total[part])[: _MOST - 1])
    return [*(part for part in found if part in kept), _REST]


def _draw(ax: Any, rows: Sequence[CompositionRow], parts: Sequence[str], handles: dict[str, Any]) -> None:
    steps = list(dict.fromkeys(row.step for row in rows))
    table = np.zeros((len(parts), len(steps)))
    for row in rows:
        where = parts.index(row.part) if row.part in parts else len(parts) - 1
        table[where, steps.index(row.step)] += 100 * row.share.mean
    numbered = [(i, float(step)) for i, step in enumerate(steps) if step is not None]
    if len(numbered) < 2:
        _bars(ax, table, ["all" if step is None else str(step) for step in steps], parts, handles)
        return
    # audits outside of training have no place on the axis
    drawn = np.asarray([_smooth(line[[i for i, _ in numbered]]) for line in table])
    x = [step for _, step in numbered]
    for i, (part, area) in enumerate(zip(parts, ax.stackplot(x, drawn, edgecolor="white", linewidth=0.6), strict=True)):
        area.set_facecolor(PALETTE[i % len(PALETTE)])
        area.set_hatch(HATCHES[(i // len(PALETTE)) % len(HATCHES)])
        if drawn[i].any():
            handles.setdefault(part, area)
    ax.set_xlim(min(x), max(x))
    ax.set_xlabel("step", fontsize=9, color=INK)
    ax.xaxis.get_major_locator().set_params(integer=True)


def _bars(ax: Any, table: Floats, labels: Sequence[str], parts: Sequence[str], handles: dict[str, Any]) -> None:
    base = np.zeros(table.shape[1])
    for i, (part, line) in enumerate(zip(parts, table, strict=True)):
        bar = ax.bar(
            range(len(labels)),
            line,
            0.6,
            bottom=base,
            color=PALETTE[i % len(PALETTE)],
            hatch=HATCHES[(i // len(PALETTE)) % len(HATCHES)],
            edgecolor="white",
        )
        base = base + line
        if line.any():
            handles.setdefault(part, bar)
    ax.set_xticks(range(len(labels)), [plain_label(label, 16) for label in labels])
    ax.set_xlim(-1, len(labels))


def _smooth(line: Floats) -> Floats:
    """Means over up to a twelfth of the steps: shares still add up to 100."""
    return rolling_mean(line, max(3, line.size // 12)) if line.size >= SMOOTH_FROM else line


def _style(ax: Any) -> None:
    ax.set_facecolor("none")
    ax.set_ylim(0, 100)
    ax.grid(True, axis="y", color=GRID, linewidth=0.8)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(INK)
    ax.tick_params(colors=INK, labelsize=9, length=0, pad=5)
