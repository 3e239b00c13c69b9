"""Judges: one module a judge, with its prompt beside it in `prompts/`.

Each docstring says what the judge sees and which bias it is known to have.
"""
