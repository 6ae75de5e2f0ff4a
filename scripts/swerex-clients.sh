#!/usr/bin/env bash
# Installs the packages that tests/e2e/sandboxes/swerex_clients.txt lists, from PyPI, each line into a
# separate folder in .treadle/swerex. Of verl one file is used: its dependencies are left out. Quick when
# all are there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/swerex

say() { printf 'swerex-clients: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

install() {
  local folder="$1" python="$1/bin/python" more=()
  shift
  if [[ "$folder" == */verl ]]; then
    python="$FOLDER/newest/bin/python"
    more=(--no-deps --target "$folder")
  else
    python3 -m venv "$folder" >&2 || fail "python3 has no venv; install python3-venv"
  fi
  "$python" -m pip install --quiet --disable-pip-version-check --no-input "${more[@]}" "$@" \
    >&2 </dev/null || fail "pip can't install $*; check the way to PyPI"
}

main() {
  local name wanted folder packages
  while read -r name wanted; do
    folder="$FOLDER/$name"
    [[ "$(cat "$folder/installed" 2>/dev/null)" == "$wanted" ]] && continue
    say "installing $wanted"
    rm -rf "$folder"
    mkdir -p "$FOLDER"
    read -ra packages <<<"$wanted"
    install "$folder" "${packages[@]}"
    # Last, so that an installation that was cut short is done again.
    printf '%s\n' "$wanted" >"$folder/installed"
  done <tests/e2e/sandboxes/swerex_clients.txt
}

main
