#!/usr/bin/env bash
# Runs all tests: with cargo-nextest where it is or can be installed, else with `cargo test`; then those
# of the console, in a browser; then the examples in the documentation, which cargo-nextest leaves out,
# and a minute of requests to the API. Beside these two a short chaos run kills servers: it waits most
# of the time.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'run-tests: %s\n' "$*" >&2; }

# The version that is installed where none is.
readonly NEXTEST=0.9.143
# Output of the chaos run, and its process.
readonly CHAOS_LOG=target/chaos.log
CHAOS=""

# Sandboxes take root, namespaces, cgroups and overlayfs. Tests of what needs them are left out where
# they are not to be had, and loudly.
ALL_TESTS='all()'
ALL_FORMS=()
SKIPPED=()
without_sandboxes() {
  say "$*: no tests of sandboxes"
  ALL_TESTS='not (binary_id(treadle-sandbox::sandbox) or (binary_id(treadle-tests::e2e) and test(/^sandboxes::/)))'
  SKIPPED=(--exclude treadle-sandbox -- --skip sandboxes::)
  ALL_FORMS=(--forms plain,retention,host-tier,rollout,shards)
}

check_sandboxes() {
  if [[ -n "${TREADLE_SKIP_SANDBOX_TESTS:-}" ]]; then
    without_sandboxes "TREADLE_SKIP_SANDBOX_TESTS is set"
  elif ! unshare --mount --pid --fork true 2>/dev/null; then
    without_sandboxes "namespaces can't be made; run as root"
  elif ! grep --quiet --word-regexp overlay /proc/filesystems; then
    without_sandboxes "the kernel has no overlayfs"
  elif ! grep --quiet cgroup /proc/mounts; then
    without_sandboxes "no cgroups are mounted"
  fi
}

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
  local variables
  variables="$(scripts/services.sh start)"
  eval "$variables"
}

# All forms, each with one kill of each kind, two at once: five minutes of runs in three.
start_chaos() {
  [[ -z "${TREADLE_SKIP_SERVICE_TESTS:-}" ]] || return 0
  cargo build --locked --quiet --workspace --bin treadle --bin treadle-chaos
  say "killing servers meanwhile; what comes of it is in $CHAOS_LOG"
  # A process group of its own, daemons and engines included.
  setsid target/debug/treadle-chaos --binary target/debug/treadle --at-once 2 --kills 1 --programs 60 \
    --pause-ms-max 3000 "${ALL_FORMS[@]}" >"$CHAOS_LOG" 2>&1 </dev/null &
  CHAOS=$!
}

# Its own servers end with it.
await_chaos() {
  [[ -n "$CHAOS" ]] || return 0
  local chaos="$CHAOS"
  if ! wait "$chaos"; then
    cat "$CHAOS_LOG" >&2
    say "the chaos run failed; make chaos runs it alone, and longer"
    return 1
  fi
  CHAOS=""
  say "the chaos run was clean in all of its forms"
}

# Most crates have no examples, and rustdoc reads all of a crate to find that out.
test_examples() {
  local packages
  mapfile -t packages < <(grep -rlE '^\s*//[/!] ```' --include='*.rs' host sdk plugins |
    sed -n 's|/src/.*|/Cargo.toml|p' | sort -u | xargs sed -s -n '0,/^name = /s/^name = "\(.*\)"$/\1/p')
  cargo test --locked --quiet --doc "${packages[@]/#/--package=}"
}

end() {
  [[ -z "$CHAOS" ]] || kill -- -"$CHAOS" 2>/dev/null || true
  [[ "${CI:-}" != true || -n "${TREADLE_SKIP_SERVICE_TESTS:-}" ]] || scripts/services.sh stop
}

main() {
  trap end EXIT
  # Some end-to-end tests drive the built binary; the tests of the command line make cargo build it.
  local profile=default
  [[ -z "${CI:-}" ]] || profile=ci
  check_sandboxes
  start_services
  if ensure_nextest; then
    # A third of the time tests wait: for servers, for engines that are simulated, for clocks.
    cargo nextest run --locked --workspace --no-fail-fast --profile "$profile" \
      --test-threads "$((($(nproc) * 3 + 1) / 2))" -E "$ALL_TESTS"
  else
    cargo test --locked --workspace --all-targets --no-fail-fast "${SKIPPED[@]}"
  fi
  scripts/build-console.sh check
  scripts/test-console.sh
  start_chaos
  test_examples
  scripts/fuzz-api.sh 60 1
  await_chaos
}

main "$@"
