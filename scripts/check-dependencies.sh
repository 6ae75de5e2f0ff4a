#!/usr/bin/env bash
# Checks all dependencies against deny.toml with cargo-deny, which scripts/setup.sh builds:
# bans, licences and sources; and the advisories of RustSec if their database can be fetched.
#
#   scripts/check-dependencies.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly DENY=.treadle/tools/bin/cargo-deny

say() { printf 'check-dependencies: %s\n' "$*" >&2; }

# Several versions of one crate are only a warning: there are many.
check() {
  "$DENY" --log-level error check --hide-inclusion-graph "$@"
}

main() {
  scripts/setup.sh deny
  check bans licenses sources
  # No test fails for the lack of a network.
  if "$DENY" --log-level off fetch db; then
    check --disable-fetch advisories
  else
    say "the advisories of RustSec can't be fetched from here, and were not checked"
  fi
}

main "$@"
