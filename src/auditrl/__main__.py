"""`python -m auditrl`."""

from .cli import main

main()
