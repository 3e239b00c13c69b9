# Every target makes .venv when it is missing or out of date, so that `make quickstart` and `make test` work on a fresh clone.
VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
ARGS ?=

.PHONY: quickstart test check format bench lock clean help

help:
	@echo "make quickstart   train a tiny auditor in the simulated world and show what it learned (about 10 minutes)"
	@echo "make test         run the tests"
	@echo "make check        lint, format and types"
	@echo "make bench        benchmarks behind docs/benchmarks.md"
	@echo "make lock         renew requirements.lock (needs uv)"

$(STAMP): requirements.lock pyproject.toml scripts/venv.sh
	@scripts/venv.sh $(VENV)
	@touch $(STAMP)

quickstart: $(STAMP)
	$(BIN)/auditrl quickstart $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright -p .
	$(BIN)/auditrl behaviors check

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/audit_loop.py
	$(BIN)/python benchmarks/grpo_vs_trl.py
	$(BIN)/python benchmarks/step_time.py
	$(BIN)/python benchmarks/judge_overhead.py
	$(BIN)/python benchmarks/pairing.py

lock:
	uv pip compile --universal --python-version 3.12 --generate-hashes --no-emit-index-url --no-header --no-annotate --extra local --extra bench --extra organisms --extra claude-code --extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
