#!/usr/bin/env bash
# Installs the packages of E2B that tests/e2e/sandboxes/e2b_clients.txt lists, from PyPI and npm, each
# into a folder of its own in .treadle/e2b. Quick when all are there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/e2b

say() { printf 'e2b-clients: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

install_py() {
  python3 -m venv "$2" >&2 || fail "python3 has no venv; install python3-venv"
  "$2/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "e2b==$1" >&2 </dev/null ||
    fail "pip can't install e2b $1; check the way to PyPI"
}

install_js() {
  command -v npm >/dev/null || fail "npm is missing, which E2B's JavaScript package needs; install Node 20 or later"
  mkdir -p "$2"
  npm --prefix "$2" install --no-audit --no-fund --silent "e2b@$1" >&2 </dev/null ||
    fail "npm can't install e2b $1; check the way to the npm registry"
}

main() {
  local language version folder
  while read -r language version; do
    folder="$FOLDER/$language-$version"
    [[ -f "$folder/installed" ]] && continue
    say "installing e2b $version for $language"
    rm -rf "$folder"
    "install_$language" "$version" "$folder"
    # Last, so that an installation that was cut short is done again.
    touch "$folder/installed"
  done <tests/e2e/sandboxes/e2b_clients.txt
}

main
