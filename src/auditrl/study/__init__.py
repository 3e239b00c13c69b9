"""The whole study in one command: every reward design, sweep and analysis of the paper, in the simulated world (`auditrl study`)."""
