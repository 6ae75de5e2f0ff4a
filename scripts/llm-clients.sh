#!/usr/bin/env bash
# Installs the packages that tests/e2e/clients/packages.txt lists, from PyPI, into .treadle/llm-clients.
# Quick when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/llm-clients PACKAGES=tests/e2e/clients/packages.txt

fail() {
  printf 'llm-clients: %s\n' "$*" >&2
  exit 1
}

main() {
  cmp -s "$FOLDER/installed" "$PACKAGES" && return 0
  printf 'llm-clients: installing %s\n' "$(tr '\n' ' ' <"$PACKAGES")" >&2
  rm -rf "$FOLDER"
  python3 -m venv "$FOLDER" >&2 || fail "python3 has no venv; install python3-venv"
  "$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$PACKAGES" \
    >&2 </dev/null || fail "pip can't install them; check the way to PyPI"
  # Last, so that an installation that was cut short is done again.
  cp "$PACKAGES" "$FOLDER/installed"
}

main
