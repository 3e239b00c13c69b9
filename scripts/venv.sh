#!/usr/bin/env bash
# Make the virtual environment: find a Python >= 3.12, install exactly what requirements.lock names, then auditrl itself.
set -euo pipefail
venv=${1:-.venv}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

# Candidates in order: $PYTHON, python3.12/3.13/3.14, python3, then the versions that pyenv holds. Prints the first that is new enough.
find_python() {
  local candidate path
  for candidate in "${PYTHON:-}" python3.12 python3.13 python3.14 python3; do
    [ -n "$candidate" ] || continue
    path=$(command -v "$candidate" 2>/dev/null) || continue
    if new_enough "$path"; then echo "$path"; return; fi
  done
  for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    if [ -x "$path" ] && new_enough "$path"; then echo "$path"; return; fi
  done
  if command -v uv >/dev/null 2>&1; then
    uv python install 3.12 >&2
    path=$(uv python find 3.12)
    if new_enough "$path"; then echo "$path"; return; fi
  fi
}

if [ -n "${PYTHON:-}" ] && ! new_enough "$(command -v "$PYTHON" || echo /nonexistent)"; then
  echo "auditrl: PYTHON=$PYTHON is no Python >= 3.12; point it at one, or unset it" >&2
  exit 2
fi
python=$(find_python)
if [ -z "$python" ]; then
  echo "auditrl: needs Python >= 3.12, and none was found as \$PYTHON, python3.12, python3.13, python3, under pyenv's versions, or through uv." >&2
  echo "auditrl: install one (for example: uv python install 3.12, or pyenv install 3.12), then run make again." >&2
  exit 2
fi
echo "auditrl: making $venv with $python ($("$python" -V))" >&2
# an environment of another Python can't be updated in place
if [ -x "$venv/bin/python" ] && ! new_enough "$venv/bin/python"; then rm -rf "$venv"; fi
[ -x "$venv/bin/python" ] || "$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
echo "auditrl: $venv is ready" >&2
