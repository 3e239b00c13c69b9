"""Transfer (Rosu & Wang 2026): auditing fine-tuned targets in a scaffold that training never used."""
