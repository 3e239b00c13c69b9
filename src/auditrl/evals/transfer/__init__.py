"""Transfer (spec section 9): auditing fine-tuned targets in a scaffold that training never used."""
