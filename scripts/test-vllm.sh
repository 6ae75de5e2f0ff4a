#!/usr/bin/env bash
# Runs the tests that need real vLLM servers.
#
#   scripts/test-vllm.sh            the tests, with a tiny model
#   scripts/test-vllm.sh tests MODULE ...
#                                   those of some modules, such as weights
#   scripts/test-vllm.sh figures    times of moves of caches, with a larger one
#   scripts/test-vllm.sh peers SHAPE TIMES ...
#                                   24 agents on two servers of its own, by treadle-bench peers with further
#                                   arguments (--systems sticky,treadle); the model is tiny, medium or
#                                   small, host memory TIMES the KV memory, 0 for none
#   scripts/test-vllm.sh what-if ...
#                                   whether what-if replay predicts two servers with a medium model and
#                                   no host memory, by treadle-bench what-if with calibrate's measurements
#
# Without VLLM_URL, two servers are started on this machine's processor and ended with the script;
# each takes 4 GB of memory, and tests start a third one, to kill it or with two ranks (5 GB). With
# VLLM_URL (two servers with the NixlConnector and --enable-scale-out, a comma between) those are used,
# and the tests that start one or update weights are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ENGINE=vllm
. scripts/engine-servers.sh

# Servers with scarce memory hold no caches for others, so these are their own.
start_scarce() {
  local shape="$1" times="$2"
  scripts/build-guests.sh rust
  cargo build --locked --release --package treadle --package treadle-bench
  BENCH="${CARGO_TARGET_DIR:-target}/release/treadle-bench"
  SERVER_ARGS=("host=$times")
  start_two "$shape"
  SIZES=(--engine-tokens 16384 --engine-context 8192)
}

compare_peers() {
  [[ "${1:-}" =~ ^(tiny|medium|small)$ && "${2:-}" =~ ^[0-9.]+$ ]] ||
    fail "give the model, tiny, medium or small, and host memory as a multiple of KV memory: peers small 0"
  start_scarce "$1" "$2"
  "$BENCH" peers --engines "$URLS" "${SIZES[@]}" --live 24 --kv 0.333 --time-scale 2 --warmup-minutes 2 \
    --minutes 4 "${@:3}"
}

check_what_if() {
  start_scarce medium 0
  "$BENCH" calibrate --url "${URLS%%,*}" --out "$FOLDER/profile.json" >&2
  "$BENCH" what-if --engines "$URLS" "${SIZES[@]}" --profile "$FOLDER/profile.json" --workloads coding \
    --repeats 2 --time-scale 4 "$@"
}

main() {
  local what="${1:-tests}" shape=tiny wanted=("${@:2}")
  wanted=("${wanted[@]/#/vllm::}")
  case "$what" in
    tests) ;;
    figures) shape=small wanted=(vllm_figures) ;;
    peers)
      compare_peers "${@:2}"
      return 0
      ;;
    what-if)
      check_what_if "${@:2}"
      return 0
      ;;
    *) fail "'$what' is not known; give tests, figures, peers, what-if, or nothing" ;;
  esac
  if [[ -n "${VLLM_URL:-}" ]]; then
    export TREADLE_TEST_VLLM_URL="$VLLM_URL"
  else
    start_two "$shape"
    [[ "$what" == figures ]] || make_versions "$shape"
    export TREADLE_TEST_VLLM_URL="$URLS"
    export TREADLE_TEST_VLLM_PYTHON="$PWD/$PYTHON" TREADLE_TEST_VLLM_MODEL="$FOLDER/model"
  fi
  local skipped=()
  [[ "$what" == figures ]] || skipped=(--skip vllm_figures)
  run_ignored "${skipped[@]}" "${wanted[@]:-vllm::}"
}

main "$@"
