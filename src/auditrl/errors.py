"""Errors by boundary, and the exit code that each one gives.

A message names the file or key and the mend. The command line prints it without a traceback and exits with `exit_code`.
"""

from __future__ import annotations


class AuditrlError(Exception):
    """Base of every error that a user can meet. Exit code 1."""

    exit_code = 1


class ConfigError(AuditrlError):
    """A config, override, bank file or argument that can't be used. Exit code 2."""

    exit_code = 2


class RunError(AuditrlError):
    """A run directory that can't be created, read or resumed. Exit code 3."""

    exit_code = 3


class ProviderError(AuditrlError):
    """A model (auditor, target, judge) or training engine that failed for good; the run stopped cleanly and resumes. Exit code 4."""

    exit_code = 4


class MissingVerdictsError(ProviderError):
    """More verdicts of a step are missing than the config allows. Exit code 4."""


class RewardError(AuditrlError):
    """A reward design returned NaN, the wrong length or an unknown audit. Exit code 5."""

    exit_code = 5


class AlarmStop(AuditrlError):
    """An alarm with `action = "stop"` went off; the run stopped at a step's end and resumes once the alarm may not stop it. Exit code 6."""

    exit_code = 6


class BudgetStop(AuditrlError):
    """A cap of the config's `budget` is reached; the run stopped at a step's end and resumes with a higher one. Exit code 7."""

    exit_code = 7


EXIT_INTERRUPTED = 130
"""Ctrl-C: the state was saved and the run can be resumed."""
