#!/usr/bin/env bash
# Downloads what the commands of the documentation install with pip and npm, so that tests run these
# commands without a network: wheels from PyPI into .treadle/guides/wheels, Node packages of policies in
# TypeScript into the cache .treadle/guides/npm. Quick when they are there; needs .treadle/venv.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/guides LOCK=sdk/typescript/package-lock.json
# Tools of policies, the package treadle-rl needs httpx, its examples numpy, and its build hatchling.
readonly REQUIREMENTS=sdk/python/requirements.txt PROJECT=sdk/python/treadle_rl/pyproject.toml
readonly PACKAGES=(hatchling httpx numpy)

say() { printf 'guide-packages: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

main() {
  local wanted temporary
  wanted="$(cat "$LOCK" "$REQUIREMENTS" "$PROJECT" | sha256sum) $(.treadle/venv/bin/python --version) ${PACKAGES[*]}"
  [[ "$(cat "$FOLDER/installed" 2>/dev/null)" == "$wanted" ]] && return 0
  say "downloading ${PACKAGES[*]}, and what $REQUIREMENTS and $LOCK list"
  rm -rf "$FOLDER"
  mkdir -p "$FOLDER/wheels"
  .treadle/venv/bin/python -m pip download --quiet --disable-pip-version-check --no-input --only-binary=:all: \
    --dest "$FOLDER/wheels" -r "$REQUIREMENTS" "${PACKAGES[@]}" >&2 </dev/null ||
    fail "pip can't download them; check the way to PyPI"
  temporary="$(mktemp -d)"
  cp "$LOCK" "${LOCK/-lock/}" "$temporary"
  npm --prefix "$temporary" --cache "$PWD/$FOLDER/npm" ci --no-audit --no-fund --silent >&2 </dev/null ||
    fail "npm can't install the packages of $LOCK; check the way to the npm registry"
  rm -rf "$temporary"
  # Last, so that a download that was cut short is done again.
  printf '%s' "$wanted" >"$FOLDER/installed"
}

main
