"""Organisms: targets that carry a behavior in their weights, for the transfer test (Rosu & Wang 2026, transfer; AuditBench).

`build` goes from a base model and a behavior to a LoRA adapter: demonstrations made with the behavior in the system prompt, training without
it (transcript distillation), training against confession (SFT or KTO), and a check of what came out.
"""
