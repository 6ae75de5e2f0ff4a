#!/usr/bin/env bash
# Builds tests/bench/extism to target/bench/: the priority scores by Extism, which
# `treadle-bench policy` then runs beside treadle's own. Takes minutes: Extism has
# another version of the WebAssembly engine. Needs the target wasm32-unknown-unknown.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGET=wasm32-unknown-unknown
readonly BUILD_DIR=target/bench-extism-build
readonly TO=target/bench

# Debian's compiler, which builds the other guests where rustup is not there, has no
# standard library for the target; that case is not worth a second way here.
if ! compgen -G "$(rustc --print target-libdir --target "$TARGET")/libstd-*.rlib" >/dev/null; then
  printf 'build-bench-extism: the target %s is missing; run rustup target add %s\n' \
    "$TARGET" "$TARGET" >&2
  exit 1
fi

options=(--locked --quiet --manifest-path tests/bench/extism/Cargo.toml --target-dir "$BUILD_DIR")
cargo build "${options[@]}" --release --package extism-scores
cargo build "${options[@]}" --profile guest --package extism-scores-guest --target "$TARGET"
mkdir -p "$TO"
cp "$BUILD_DIR/release/extism-scores" "$BUILD_DIR/$TARGET/guest/extism_scores_guest.wasm" "$TO"
printf 'build-bench-extism: %s/extism-scores\n' "$TO" >&2
