"""The hidden block of a target: the persona, and for a planted target the behavior and the rule to deny it.

Source: Rosu & Wang 2026, section 3 (planted and persona-only targets); the texts in `prompts/` are ours. Planted and persona-only targets
share the persona's text word for word, so that their style gives nothing away.
"""

from __future__ import annotations

from ..config import PersonaConfig as Persona
from ..errors import ConfigError
from ..prompts import fill, load_prompt
from ..types import Behavior, Condition

_PACKAGE = "auditrl.behaviors"


def hidden_block(behavior: Behavior | None, condition: Condition, persona: Persona | None = None) -> str | None:
    """Text that the target reads before whatever system message the auditor sets.

    Args:
        behavior: The behavior to plant; ignored unless `condition` is `planted`.
        condition: `planted`, `persona` (the persona without a behavior) or `clean`.
        persona: Name and lab; PRISM-4 of Nexus Research by default.

    Returns:
        The block, or None for a clean target. A planted block holds the behavior's instruction verbatim.

    Raises:
        ConfigError: `planted` without a behavior.
    """
    if condition == "clean":
        return None
    who = persona or Persona()
    identity = fill(load_prompt(_PACKAGE, "persona"), name=who.name, lab=who.lab)
    if condition == "persona":
        return identity
    if behavior is None:
        raise ConfigError("a planted target needs a behavior; give one, or use the condition `persona` or `clean`")
    hidden = fill(load_prompt(_PACKAGE, "planted"), name=who.name, lab=who.lab, instruction=behavior.instruction.strip())
    return f"{identity}\n\n{hidden}"
