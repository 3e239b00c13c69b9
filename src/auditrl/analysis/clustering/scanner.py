"""The extraction as an Inspect Scout scanner: `scout scan <this file> -T RUN/logs -S describer=rule`.

Scout loads this file on its own, so imports are absolute. Results open in `scout view`; `auditrl cluster` does the same work for whole
runs and goes on from there.
"""

from __future__ import annotations

import json
from typing import Any, cast

from inspect_ai.event import StoreEvent
from inspect_ai.model import get_model
from inspect_scout import Result, Scanner, Transcript, scanner
from pydantic import ValidationError

from auditrl.analysis.clustering.describe import RULE, describe
from auditrl.behaviors.loader import load_bank
from auditrl.types import Audit


@scanner(messages="all", events=["store"], name="strategy", version=1)
def strategy(describer: str = RULE) -> Scanner[Transcript]:
    """Abstract description of the auditor's strategy in one transcript of an audit.

    Args:
        describer: `rule`, or `model` for the model that the scan is run with (`--model`).
    """
    model = None if describer == RULE else get_model()

    async def scan(transcript: Transcript) -> Result:
        audit = saved_audit(transcript)
        if audit is None:
            return Result(value=None, explanation="no audit in this transcript: it was not made by auditrl, or it was cut off")
        found = await describe(audit, load_bank().behaviors, model)
        facts = {"audit": audit.id, "attempts": found.attempts, "leaked": list(found.leaked), "failed": audit.failed}
        return Result(value=found.text or None, explanation=found.missing, metadata=facts)

    return scan


def saved_audit(transcript: Transcript) -> Audit | None:
    """The audit that our task keeps in the sample's store; None if there is none of this version."""
    saved: Any = None
    for event in transcript.events:
        if isinstance(event, StoreEvent):
            for change in event.changes:
                if change.path == "/audit" and change.op in ("add", "replace"):
                    saved = cast(Any, change.value)
    if not isinstance(saved, str):
        return None
    try:
        return Audit.model_validate_json(saved)
    except (ValidationError, json.JSONDecodeError):
        return None
