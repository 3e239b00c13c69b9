"""Figures: valid output, nothing injected, nothing global."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from auditrl.analysis import figures
from auditrl.analysis.stats import Interval

SVG = "{http://www.w3.org/2000/svg}"
METRICS = [{"step": i, "reward": 0.5 + i / 100, "fp_share": 30.0 - i, "tokens_per_s": 4000.0, "note": "x"} for i in range(20)]


def labels(svg: str) -> str:
    return " ".join("".join(node.itertext()).strip() for node in ET.fromstring(svg).iter(f"{SVG}text"))


def test_training_curves_show_the_panels_that_have_data() -> None:
    shown = labels(figures.to_svg(figures.training_curves(METRICS)))
    assert "Reward" in shown and "False accusations" in shown and "Throughput" in shown and "Composite proxy" not in shown


def test_values_that_are_no_numbers_are_left_out_not_drawn_as_zero() -> None:
    rows = [
        {"step": 0, "reward": 1.0},
        {"step": 1, "reward": None},
        {"step": 2, "reward": math.nan},
        {"reward": True},
        {"step": 4, "reward": 3},
    ]
    x, y = figures.column(rows, "reward")
    assert x.tolist() == [0, 4] and y.tolist() == [1, 3]
    with pytest.raises(ValueError, match="hold none of reward"):
        figures.training_curves([{"step": 0}])


@pytest.mark.parametrize("window", [1, 3, 5, 50])
def test_rolling_mean_against_a_plain_loop(window: int) -> None:
    values = np.random.default_rng(1).normal(size=17)
    half = window // 2
    wanted = [values[max(0, i - half) : i + half + 1].mean() for i in range(17)]
    assert figures.rolling_mean(values, window).tolist() == pytest.approx(wanted)


def bars() -> Figure:
    gap = Interval(math.nan, math.nan, math.nan, math.nan, 0)
    return figures.bars(
        ["a", "b"], {"x": [Interval(5, 4, 8, 2, 9), None], "y": [gap, Interval(3, math.nan, math.nan, math.nan, 1)]}, title="t"
    )


def test_output_is_the_same_every_time_and_leaves_no_global_state() -> None:
    before = dict(matplotlib.rcParams)
    first, second = (figures.to_svg(bars()) for _ in range(2))
    assert first == second
    assert figures.to_png(figures.training_curves(METRICS[:3]))[:8] == b"\x89PNG\r\n\x1a\n"
    assert dict(matplotlib.rcParams) == before


def test_bars_survive_gaps_and_unknown_intervals() -> None:
    ET.fromstring(figures.to_svg(bars()))


def test_inline_svg_follows_the_page_and_keeps_to_itself() -> None:
    inline = figures.to_inline_svg(bars(), "one", 'bars "&<x>')
    root = ET.fromstring(inline)
    assert root.get("aria-label") == 'bars "&<x>' and root.get("viewBox") and root.get("width") is None
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert ids and all(str(i).startswith("one-") for i in ids)
    assert "currentColor" in inline and "var(--s1" in inline and figures.INK not in inline
    assert "<style" not in inline and "<metadata" not in inline and "<?xml" not in inline
    with pytest.raises(ValueError, match="lower-case"):
        figures.to_inline_svg(bars(), 'a" onload="', "x")


HOSTILE = "</text><script>alert(1)</script> $\\frac{ \x00\u202e\ud800 " + "x" * 5000


def test_hostile_labels_are_text() -> None:
    line = figures.Series(HOSTILE, [0, 1], [Interval(50, 40, 60, 10, 5), 70.0])
    figure = figures.lines([line, figures.Series("published", [0, 1], [1, 2], dashed=True)], title=HOSTILE, x=HOSTILE, unit=HOSTILE)
    root = ET.fromstring(figures.to_inline_svg(figure, "h", HOSTILE))
    assert not list(root.iter(f"{SVG}script"))
    assert "<script>alert(1)" in labels(figures.to_svg(figure))


def test_dollar_signs_are_not_mathematics() -> None:
    figure = figures.lines([figures.Series("$\\frac{$", [0], [1]), figures.Series("$x^2$", [0], [2])], title="costs $1, not $2", x="x")
    shown = labels(figures.to_svg(figure))
    assert all(text in shown for text in ("$\\frac{$", "$x^2$", "costs $1, not $2"))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a\nb\tc", "a b c"),
        ("x\u202ey\x00z", "xyz"),
        ("abc" * 40, "abc" * 15 + "ab\u2026"),
        ("\ud83d\ude00"[:1] + "k", "k"),
        ("caf\u00e9 \u4e2d", "caf\u00e9 \u4e2d"),
    ],
)
def test_plain_label(text: str, label: str) -> None:
    assert figures.plain_label(text) == label


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("nothing to draw", lambda: figures.bars([], {}, title="t")),
        ("2 values for 1 groups", lambda: figures.bars(["a"], {"x": [None, None]}, title="t")),
        ("nothing to draw", lambda: figures.lines([], title="t", x="x")),
        ("1 places and 2 values", lambda: figures.lines([figures.Series("s", [1], [1, 2])], title="t", x="x")),
        ("below 1", lambda: figures.rolling_mean(np.ones(3), 0)),
        ("can't be told apart", lambda: figures.score_bars([None] * 7)),  # type: ignore[list-item]
    ],
)
def test_bad_input_is_named(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call()
