#!/usr/bin/env bash
# Runs all tests: with cargo-nextest where it is or can be installed, else with `cargo test`, and
# then the examples in the documentation, which cargo-nextest leaves out.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'run-tests: %s\n' "$*" >&2; }

# The version that is installed where none is.
readonly NEXTEST=0.9.143

ensure_nextest() {
  cargo nextest --version >/dev/null 2>&1 && return 0
  say "installing cargo-nextest $NEXTEST with cargo"
  cargo install cargo-nextest --locked --version "$NEXTEST" >&2 && return 0
  say "cargo-nextest can't be installed; cargo test takes its place"
  return 1
}

# Starts what the tests of the database and the broker need, and says where it is. Outside of CI the
# servers stay for the next run; scripts/services.sh stop ends them.
start_services() {
  if [[ -n "${TREADLE_SKIP_SERVICE_TESTS:-}" ]]; then
    say "TREADLE_SKIP_SERVICE_TESTS is set: no tests against PostgreSQL and RabbitMQ"
    return 0
  fi
  [[ "${CI:-}" != true ]] || trap 'scripts/services.sh stop' EXIT
  local variables
  variables="$(scripts/services.sh start)"
  eval "$variables"
}

main() {
  # Some end-to-end tests drive the built binary; the tests of the command line make cargo build it.
  local profile=default
  [[ -z "${CI:-}" ]] || profile=ci
  start_services
  if ensure_nextest; then
    cargo nextest run --locked --workspace --no-fail-fast --profile "$profile"
  else
    cargo test --locked --workspace --all-targets --no-fail-fast
  fi
  cargo test --locked --quiet --workspace --doc
}

main "$@"
