#!/usr/bin/env bash
# Builds the web console to web/dist, which the build of treadle embeds. Quick when nothing
# changed. Without Node treadle is built without a console, and works all the same.
#
#   scripts/build-console.sh         builds it
#   scripts/build-console.sh check   its types, lints, unit tests and size too
set -euo pipefail
cd "$(dirname "$0")/.."

readonly STAMP=target/console.stamp
readonly NODE_MIN=20

say() { printf 'build-console: %s\n' "$*" >&2; }

has_node() {
  local version
  version="$(node --version 2>/dev/null)" || return 1
  command -v npm >/dev/null || return 1
  version="${version#v}"
  ((${version%%.*} >= NODE_MIN))
}

# Of all that the build goes by.
digest() {
  find web docs/reference/openapi.json -type f -not -path 'web/node_modules/*' -not -path 'web/dist/*' \
    -not -path 'web/screenshots/*' -not -path web/src/api/schema.ts -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

packages() {
  local wanted
  wanted="$(sha256sum web/package-lock.json)"
  [[ -f web/node_modules/installed && "$(<web/node_modules/installed)" == "$wanted" ]] && return 0
  say "installing the packages of web/package-lock.json"
  npm --prefix web ci --no-audit --no-fund --loglevel error >&2
  printf '%s' "$wanted" >web/node_modules/installed
}

main() {
  if ! has_node; then
    say "Node $NODE_MIN or newer and npm are missing: no console"
    return 0
  fi
  local now
  now="$(digest)"
  if [[ ! -f web/dist/index.html || ! -f "$STAMP" || "$(<"$STAMP")" != "$now" ]]; then
    packages
    npm --prefix web run --silent build >&2
    mkdir -p target
    printf '%s' "$now" >"$STAMP"
  fi
  [[ "${1:-}" == check ]] || return 0
  packages
  npm --prefix web run --silent check >&2
  npm --prefix web run --silent check:size >&2
}

main "$@"
