"""The audit environment: scenario -> Inspect task -> Audit."""
