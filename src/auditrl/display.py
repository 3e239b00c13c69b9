"""What a person sees while work goes on: rich (live line), plain (one line an event), none."""

from __future__ import annotations

import sys
import time
from typing import Literal, Protocol

Mode = Literal["auto", "rich", "plain", "none"]


class Display(Protocol):
    """Progress of one piece of work at a time, and notes."""

    def start(self, title: str, total: int, done: int = 0) -> None:
        """Begin a piece of work of `total` units."""
        ...

    def advance(self, text: str = "", units: int = 1) -> None:
        """Some units are done; `text` describes the newest."""
        ...

    def finish(self) -> None:
        """The piece of work is over."""
        ...

    def note(self, text: str) -> None:
        """Say something that stays."""
        ...


def make_display(mode: Mode = "auto") -> Display:
    """`auto` is rich on a terminal, plain elsewhere."""
    if mode == "auto":
        mode = "rich" if sys.stderr.isatty() else "plain"
    return {"rich": RichDisplay, "plain": PlainDisplay, "none": NoDisplay}[mode]()


def duration(seconds: float) -> str:
    """`95` -> `1m35s`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class NoDisplay:
    """Says nothing."""

    def start(self, title: str, total: int, done: int = 0) -> None: ...
    def advance(self, text: str = "", units: int = 1) -> None: ...
    def finish(self) -> None: ...
    def note(self, text: str) -> None: ...


class PlainDisplay:
    """One line an event on standard error; at most one progress line in two seconds."""

    def __init__(self) -> None:
        self._title, self._total, self._done, self._begin, self._began_at, self._last = "", 0, 0, 0.0, 0, 0.0

    def start(self, title: str, total: int, done: int = 0) -> None:
        self._title, self._total, self._done, self._began_at = title, total, done, done
        self._begin = self._last = time.monotonic()
        self._say(f"{title}: {total - done} to do")

    def advance(self, text: str = "", units: int = 1) -> None:
        self._done += units
        moment = time.monotonic()
        if self._done < self._total and moment - self._last < 2:
            return
        self._last = moment
        fresh = self._done - self._began_at
        left = duration((moment - self._begin) / max(1, fresh) * (self._total - self._done))
        # audits run side by side: the first to end says nothing about the rest
        known = 20 * fresh >= self._total - self._began_at
        self._say(f"{self._title} {self._done}/{self._total}{f'  {text}' if text else ''}{f'  left {left}' if known else ''}")

    def finish(self) -> None:
        if self._title:
            self._say(f"{self._title}: {self._done}/{self._total} in {duration(time.monotonic() - self._begin)}")
        self._title = ""

    def note(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class RichDisplay:
    """A live progress bar with time left; notes stay above it."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._progress: object | None = None

    def start(self, title: str, total: int, done: int = 0) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.finish()
        progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=self._console,
        )
        progress.add_task(title, total=total, completed=done, text="")
        progress.start()
        self._progress = progress

    def advance(self, text: str = "", units: int = 1) -> None:
        from rich.progress import Progress

        if isinstance(self._progress, Progress):
            task = self._progress.tasks[0]
            self._progress.update(task.id, advance=units, text=text or task.fields["text"])

    def finish(self) -> None:
        from rich.progress import Progress

        if isinstance(self._progress, Progress):
            self._progress.stop()
        self._progress = None

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)
