"""Progress for people: plain lines without a terminal, nothing when asked for nothing."""

from __future__ import annotations

import pytest

from auditrl import display as module
from auditrl.display import NoDisplay, PlainDisplay, RichDisplay, duration, make_display


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.6, "1m00s"), (95, "1m35s"), (3725, "1h02m"), (-3, "0s")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines_are_few_and_say_what_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(float(t) for t in range(1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    shown = PlainDisplay()
    shown.start("train", 10, done=4)
    for _ in range(6):
        shown.advance("reward 0.5")
    shown.finish()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "train: 6 to do"
    assert lines[1] == "train 6/10  reward 0.5  left 4s"
    assert lines[-2].startswith("train 10/10")
    assert lines[-1] == "train: 10/10 in 7s"
    assert len(lines) < 8


def test_no_guess_from_the_first_of_many(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(float(10 * t) for t in range(1000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    shown = PlainDisplay()
    shown.start("audits", 100)
    for _ in range(5):
        shown.advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "audits 1/100"
    assert lines[-1] == "audits 5/100  left 15m50s"


def test_finishing_what_was_not_begun_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (PlainDisplay(), RichDisplay(), NoDisplay()):
        shown.finish()
    assert capsys.readouterr().err == ""


def test_markup_in_notes_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    RichDisplay().note("path [red]x[/red]")
    assert "[red]x[/red]" in capsys.readouterr().err


def test_auto_is_plain_without_a_terminal() -> None:
    assert isinstance(make_display("auto"), PlainDisplay)
    assert isinstance(make_display("none"), NoDisplay)
