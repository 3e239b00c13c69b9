"""Commands in processes of their own: each writes into a log, all are ended in order when ours is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

POLL_S = 0.25
"""Seconds between looks at running processes."""
GRACE_S = 60.0
"""Seconds that interrupted processes have to save their work."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(slots=True)
class Child:
    """A running process."""

    process: subprocess.Popen[bytes]
    log: Path
    begin: float
    output: IO[bytes]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    @property
    def seconds(self) -> float:
        """Since it was begun."""
        return time.monotonic() - self.begin

    def close(self) -> int:
        """Close the log of a process that has ended; returns its exit code."""
        self.output.close()
        return self.process.returncode


def begin(words: Sequence[str], log: Path) -> Child:
    """Start a command on one thread; what it says is added to the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    output = log.open("ab")
    # a session of its own: ctrl-C reaches our process alone, which then ends its children in order
    process = subprocess.Popen(
        list(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **THREADS}, start_new_session=True
    )
    return Child(process, log, time.monotonic(), output)


def last_words(log: Path) -> str:
    """The last error line of a process, or the last line at all."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:] if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("auditrl: ")), lines[-1] if lines else "")
    return said.removeprefix("auditrl: ")[:500]


def interrupt(children: Sequence[Child]) -> None:
    """Ask every process to save and end; those that do not are ended."""
    for child in children:
        _signal(child, signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    try:
        for child in children:
            child.process.wait(max(0.1, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # too slow, or asked a second time
        for child in children:
            _signal(child, signal.SIGKILL)
            child.process.wait()


def _signal(child: Child, number: int) -> None:
    if not child.ended:
        child.process.send_signal(number)


@contextmanager
def signals_interrupt() -> Generator[None]:
    """SIGTERM does what ctrl-C does, so that no process is left behind without ours.

    SIGINT gets a handler too: in a background job it is ignored, and the children would inherit that.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before: list[Any] = [signal.signal(number, stop) for number in numbers]
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
