"""The suites that measure an auditor, and the checks of the targets they use."""
