#!/usr/bin/env bash
# Installs the packages that tests/e2e/clients/packages.txt lists, from PyPI, into .treadle/llm-clients, and
# single files of the wheels that tests/e2e/clients/wheels.txt lists: their packages need GPUs or gigabytes.
# Quick when they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/llm-clients PACKAGES=tests/e2e/clients/packages.txt
readonly FILES="$FOLDER/files" WHEELS=tests/e2e/clients/wheels.txt

fail() {
  printf 'llm-clients: %s\n' "$*" >&2
  exit 1
}

install_packages() {
  cmp -s "$FOLDER/installed" "$PACKAGES" && return 0
  printf 'llm-clients: installing %s\n' "$(tr '\n' ' ' <"$PACKAGES")" >&2
  rm -rf "$FOLDER"
  python3 -m venv "$FOLDER" >&2 || fail "python3 has no venv; install python3-venv"
  "$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$PACKAGES" \
    >&2 </dev/null || fail "pip can't install them; check the way to PyPI"
  # Last, so that an installation that was cut short is done again.
  cp "$PACKAGES" "$FOLDER/installed"
}

take_file() {
  local package="$1" file="$2" wheels
  printf 'llm-clients: taking %s of %s\n' "$file" "$package" >&2
  wheels="$(mktemp -d)"
  # The file works with older versions of Python than its package requires.
  "$FOLDER/bin/python" -m pip download --quiet --disable-pip-version-check --no-input --no-deps \
    --only-binary=:all: --python-version 3.12 --dest "$wheels" "$package" >&2 </dev/null ||
    fail "pip can't download $package; check the way to PyPI"
  "$FOLDER/bin/python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(*sys.argv[2:])' \
    "$wheels"/*.whl "$file" "$FILES"
  rm -rf "$wheels"
}

take_files() {
  cmp -s "$FILES/installed" "$WHEELS" && return 0
  rm -rf "$FILES"
  mkdir -p "$FILES"
  local package file
  while read -r package file; do
    take_file "$package" "$file"
  done <"$WHEELS"
  cp "$WHEELS" "$FILES/installed"
}

install_packages
take_files
