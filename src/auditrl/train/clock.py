"""Where the time of a step goes."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Seconds of the parts of a step."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Time since the last lap goes to `name`."""
        moment = time.perf_counter()
        self._laps[name] = moment - self._last
        self._last = moment

    def times(self, row: dict[str, Any]) -> dict[str, float]:
        """Laps, their total, and auditor tokens a second over audits and update."""
        total = sum(self._laps.values())
        tokens = row["usage"].get("auditor", {}).get("output", 0)
        return {
            **{k: round(v, 4) for k, v in self._laps.items()},
            "total": round(total, 4),
            "tokens_per_s": round(tokens / total, 1) if total else 0.0,
        }
