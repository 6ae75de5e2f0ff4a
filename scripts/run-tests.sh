#!/usr/bin/env bash
# What `make test` runs, on a clean checkout, and how long each phase took: builds, lints, all tests with
# cargo-nextest, then the console in a browser and a short chaos run, which wait most of the time, and
# beside them Codex and Claude Code, the Python package, checks of the console, examples in the
# documentation and a minute of requests to the API.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'run-tests: %s\n' "$*" >&2; }

# The version to install if it is missing.
readonly NEXTEST=0.9.143
# What cargo-nextest takes instead of asking cargo.
readonly BINARIES=target/tests.json METADATA=target/metadata.json
# Processes of what runs beside the phases, by name. The output of each is in target/NAME.log.
declare -A BESIDE=()
PREPARING=""

# Sandboxes need root, namespaces, cgroups and overlayfs. Without these their tests are skipped with a
# message.
ALL_TESTS='all()'
ALL_FORMS=()
without_sandboxes() {
  say "$*: no tests of sandboxes"
  ALL_TESTS='not (binary_id(treadle-sandbox::sandbox) or (binary_id(treadle-tests::e2e) and test(/^sandboxes::/)))'
  ALL_FORMS=(--forms plain,retention,host-tier,rollout,shards,training)
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
  cargo install cargo-nextest --locked --version "$NEXTEST" >&2
}

# Runs a phase and keeps its time.
PHASES=()
phase() {
  local name=$1 began=$SECONDS
  shift
  say "$name"
  "$@"
  PHASES+=("$((SECONDS - began)) s  $name")
}

print_phases() {
  ((${#PHASES[@]} == 0)) || printf 'run-tests: %s\n' "${PHASES[@]}" "$SECONDS s  in all" >&2
}

# cargo with clippy as the compiler of the workspace's own crates: one build has the binaries and the
# lints. Not exported, because tests run cargo too.
linting_cargo() {
  RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ cargo "$@"
}

# Dependencies of the tests in other languages, and policies in these: mostly downloads.
prepare() {
  scripts/setup.sh test
  scripts/build-guests.sh scripts
}

# Some end-to-end tests drive the built programs. They are built together with the tests: without
# these, cargo chooses fewer features of dependencies, and half the crates are compiled twice.
build() {
  linting_cargo build --locked --workspace --bins --tests
  linting_cargo nextest list --locked --workspace --list-type binaries-only --message-format json >"$BINARIES"
  cargo metadata --locked --format-version 1 >"$METADATA"
}

# Starts the servers for the tests of the database and the broker, and sets their URLs. Outside of CI the
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

# A third of the time tests wait: for servers, for engines that are simulated, for clocks.
run_tests() {
  local profile=default
  [[ -z "${CI:-}" ]] || profile=ci
  cargo nextest run --binaries-metadata "$BINARIES" --cargo-metadata "$METADATA" --no-fail-fast \
    --profile "$profile" --test-threads "$(($(nproc) * 2))" \
    -E "$ALL_TESTS"
}

# Types, style and tests of the Python package; its packages are those of the tests of clients.
test_python() {
  if [[ -n "${TREADLE_SKIP_CLIENT_TESTS:-}" ]]; then
    say "TREADLE_SKIP_CLIENT_TESTS is set: no tests of the Python package"
    return 0
  fi
  local run="$PWD/.treadle/llm-clients/bin/python -m"
  (cd sdk/python/treadle_rl && $run ruff check --quiet && $run mypy src tests >&2 && $run pytest --quiet >&2)
}

# Runs a program beside the next phases, in a process group of its own: daemons and engines included.
beside() {
  local name=$1
  shift
  say "$name meanwhile; its output is in target/$name.log"
  setsid "$@" >"target/$name.log" 2>&1 </dev/null &
  BESIDE[$name]=$!
}

await() {
  local name=$1
  [[ -n "${BESIDE[$name]:-}" ]] || return 0
  local failed=0
  wait "${BESIDE[$name]}" || failed=1
  unset "BESIDE[$name]"
  ((failed == 0)) || { cat "target/$name.log" >&2; say "$name failed"; return 1; }
}

# All forms, each with one kill of each kind, two at once: six minutes of runs in four. Its own servers
# end with it.
start_chaos() {
  [[ -z "${TREADLE_SKIP_SERVICE_TESTS:-}" ]] || return 0
  beside chaos target/debug/treadle-chaos --binary target/debug/treadle --at-once 2 --kills 1 --programs 60 \
    --pause-ms-max 3000 "${ALL_FORMS[@]}"
}

# Codex and Claude Code, at simulated engines.
start_agents() {
  if [[ -n "${TREADLE_SKIP_CLIENT_TESTS:-}" ]]; then
    say "TREADLE_SKIP_CLIENT_TESTS is set: no tests of Codex and Claude Code"
    return 0
  fi
  beside agents env TREADLE_BIN=target/debug/treadle scripts/test-agents.sh
}

# Crates without examples say `doctest = false`.
test_examples() {
  linting_cargo test --locked --quiet --doc --workspace
}

end() {
  print_phases
  [[ -z "$PREPARING" ]] || kill "$PREPARING" 2>/dev/null || true
  local process
  for process in "${BESIDE[@]}"; do kill -- -"$process" 2>/dev/null || true; done
  [[ "${CI:-}" != true || -n "${TREADLE_SKIP_SERVICE_TESTS:-}" ]] || scripts/services.sh stop
}

main() {
  trap end EXIT
  check_sandboxes
  phase "packages for building" scripts/setup.sh build
  phase "format" cargo fmt --all --check
  phase "policies" scripts/build-guests.sh rust
  phase "console" scripts/build-console.sh
  prepare &
  PREPARING=$!
  phase "cargo-nextest" ensure_nextest
  phase "build with lints" build
  phase "the rest of what tests need" wait "$PREPARING"
  PREPARING=""
  start_services
  phase "tests" run_tests
  start_agents
  phase "Python package" test_python
  phase "rest of Codex and Claude Code" await agents
  start_chaos
  beside browser scripts/test-console.sh
  phase "checks of the console" scripts/build-console.sh check
  phase "examples" test_examples
  phase "requests to the API" scripts/fuzz-api.sh 60 1
  phase "rest of the console in a browser" await browser
  phase "rest of the chaos run" await chaos
}

main "$@"
