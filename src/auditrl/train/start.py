"""The policy before training, evaluated for several runs at once: `python -m auditrl.train.start RUN` (a child of `auditrl sweep`)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ..display import Display, make_display
from ..errors import EXIT_INTERRUPTED, AuditrlError
from ..runs import Run, open_run, owned


async def evaluate_start(run: Run, display: Display) -> None:
    """Evaluate the policy that a run would begin with, into `evaluation/before`. Nothing is trained."""
    from .evaluation import evaluate
    from .workshop import open_workshop

    shop = open_workshop(run, display)
    try:
        await shop.engine.start()
        await evaluate(shop, "before")
    finally:
        await shop.engine.close()


def main(folder: str) -> int:
    """Exit code of the evaluation; errors stand on standard error without a traceback."""
    try:
        run = open_run(Path(folder))
        with owned(run):
            asyncio.run(evaluate_start(run, make_display("plain")))
    except AuditrlError as error:
        print(f"auditrl: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
