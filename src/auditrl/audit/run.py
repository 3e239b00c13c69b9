"""Run audit tasks: one Inspect log per call, quiet, in the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from inspect_ai import Task, eval_async
from inspect_ai.log import EvalLog
from inspect_ai.model import Model
from inspect_ai.util import display_type

from ..config import AuditConfig
from ..errors import ProviderError
from ..types import Audit
from .overhead import light
from .task import Joined, Unit, audit_task, not_joined


@contextlib.contextmanager
def _log_name(name: str) -> Generator[None]:
    # Inspect takes the pattern of log names from the environment only
    key = "INSPECT_EVAL_LOG_FILE_PATTERN"
    before = os.environ.get(key)
    os.environ[key] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


def quiet() -> None:
    """Inspect's own progress display would fight with ours; it is read from the environment at first use."""
    os.environ.setdefault("INSPECT_DISPLAY", "none")
    display_type()


async def evaluate(
    task: Task, *, audits: int, log_dir: Path, max_samples: int, model: Model | None = None, roles: Mapping[str, Model] | None = None
) -> EvalLog:
    """Run a task of that many audits as all ours are run: one log, written at the end, nothing served or shown meanwhile.

    Raises:
        CancelledError: It was interrupted.
    """
    quiet()
    async with light(min(audits, max_samples)):
        logs: list[EvalLog] = await eval_async(
            task,
            model=model,
            model_roles=dict(roles) if roles is not None else None,
            max_samples=max_samples,
            log_dir=str(log_dir),
            log_realtime=False,
            log_model_api=False,
            log_images=False,
            log_buffer=audits + 1,
            log_header_only=True,
            acp_server=False,
            ctl_server=False,
            score=False,
            fail_on_error=False,
        )
    if not logs or logs[0].status == "cancelled":
        # Inspect ends a cancelled evaluation without passing the cancellation on
        raise asyncio.CancelledError
    return logs[0]


async def run_audits(
    units: Sequence[Unit],
    settings: AuditConfig,
    *,
    auditors: Mapping[str, Model],
    targets: Mapping[str, Model],
    auditor_name: str,
    log_dir: Path,
    name: str,
    joined: Joined = not_joined,
    on_audit: Callable[[Audit], None] | None = None,
    extra_roles: Mapping[str, Model] | None = None,
) -> tuple[list[Audit], Path]:
    """Run the units concurrently and wait for all.

    Returns:
        Audits in the order of the units (failed ones included), and the path of the Inspect log.

    Raises:
        ProviderError: The evaluation itself did not finish (not: single audits that failed).
        CancelledError: It was interrupted.
    """
    done: dict[str, Audit] = {}

    def collect(audit: Audit) -> None:
        done[audit.id] = audit
        if on_audit is not None:
            on_audit(audit)

    task = audit_task(units, settings, targets, auditor_name=auditor_name, collect=collect, joined=joined, name=name, auditors=auditors)
    auditor = next(iter(auditors.values()))
    roles = {"auditor": auditor, "target": next(iter(targets.values())), "realism": auditor, **(extra_roles or {})}
    with _log_name(name):
        log = await evaluate(task, audits=len(units), log_dir=log_dir, max_samples=settings.max_concurrent or len(units), roles=roles)
    missing = [unit.audit_id for unit in units if unit.audit_id not in done]
    if log.status != "success" or missing:
        detail = log.error.message if log.error else f"{len(missing)} audits ended without a record, first {missing[:1]}"
        raise ProviderError(
            f"{name}: the audits did not finish ({detail}). The log is {log.location}. Mend the cause, then `auditrl resume`."
        )
    return [done[unit.audit_id] for unit in units], Path(log.location)
