#!/usr/bin/env bash
# Runs the tests that need real vLLM servers.
#
#   scripts/test-vllm.sh            the tests, with a tiny model
#   scripts/test-vllm.sh figures    what moves of caches take, with a larger one
#   scripts/test-vllm.sh peers SHAPE TIMES ...
#                                   24 agents on two servers of its own, by treadle-bench peers with further
#                                   arguments (--systems sticky,treadle); the model is tiny or small, host
#                                   memory TIMES the KV memory, 0 for none
#
# Without VLLM_URL, two servers are started on this machine's processor and ended with the script;
# each takes 4 GB of memory, and a test starts another one to kill it. With VLLM_URL (two servers with
# the NixlConnector and --enable-scale-out, a comma between) those are used, and the tests that kill are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ENGINE=vllm
. scripts/engine-servers.sh

# Servers that offload hold no caches for others, so these are their own.
compare_peers() {
  [[ "${1:-}" =~ ^(tiny|small)$ && "${2:-}" =~ ^[0-9.]+$ ]] ||
    fail "give the model, tiny or small, and host memory as a multiple of KV memory: peers small 0"
  scripts/build-guests.sh rust
  cargo build --locked --release --package treadle --package treadle-bench
  SERVER_ARGS=("host=$2")
  start_two "$1"
  "${CARGO_TARGET_DIR:-target}/release/treadle-bench" peers --engines "$URLS" --engine-tokens 16384 \
    --engine-context 8192 --live 24 --kv 0.333 --time-scale 2 --warmup-minutes 2 --minutes 4 "${@:3}"
}

main() {
  local what="${1:-tests}" shape=tiny wanted=vllm::
  case "$what" in
    tests) ;;
    figures) shape=small wanted=vllm_figures ;;
    peers)
      compare_peers "${@:2}"
      return 0
      ;;
    *) fail "'$what' is not known; give figures, peers, or nothing" ;;
  esac
  if [[ -n "${VLLM_URL:-}" ]]; then
    export TREADLE_TEST_VLLM_URL="$VLLM_URL"
  else
    start_two "$shape"
    export TREADLE_TEST_VLLM_URL="$URLS"
    export TREADLE_TEST_VLLM_PYTHON="$PWD/$PYTHON" TREADLE_TEST_VLLM_MODEL="$FOLDER/model"
  fi
  local skipped=()
  [[ "$what" == figures ]] || skipped=(--skip vllm_figures)
  run_ignored "${skipped[@]}" "$wanted"
}

main "$@"
