#!/usr/bin/env bash
# Runs all tests: with cargo-nextest where it is or can be installed, else with `cargo test`, and
# then the examples in the documentation, which cargo-nextest leaves out.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'run-tests: %s\n' "$*" >&2; }

ensure_nextest() {
  cargo nextest --version >/dev/null 2>&1 && return 0
  say "installing cargo-nextest with cargo"
  cargo install cargo-nextest --locked >&2 && return 0
  say "cargo-nextest can't be installed; cargo test takes its place"
  return 1
}

main() {
  # Some end-to-end tests drive the built binary; the tests of the command line make cargo build it.
  local profile=default
  [[ -z "${CI:-}" ]] || profile=ci
  if ensure_nextest; then
    cargo nextest run --locked --workspace --no-fail-fast --profile "$profile"
  else
    cargo test --locked --workspace --all-targets --no-fail-fast
  fi
  cargo test --locked --quiet --workspace --doc
}

main "$@"
