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

# Crates with a library that is no plugin have documentation to test.
documented() {
  local source
  for source in host/*/src/lib.rs host/core/model/src/lib.rs sdk/rust/src/lib.rs; do
    awk -F '"' '/^name = / { print $2; exit }' "$(dirname "$source")/../Cargo.toml"
  done
}

main() {
  # Some end-to-end tests drive the built binary, which no test of another package rebuilds.
  cargo build --locked --package treadle
  if ensure_nextest; then
    cargo nextest run --locked --workspace --no-fail-fast
  else
    cargo test --locked --workspace --all-targets --no-fail-fast
  fi
  local packages=() name
  while read -r name; do packages+=(--package "$name"); done < <(documented)
  cargo test --locked --quiet --doc "${packages[@]}"
}

main "$@"
