#!/usr/bin/env bash
# Runs the tests that need real vLLM servers.
#
#   scripts/test-vllm.sh            the tests, with a tiny model
#   scripts/test-vllm.sh figures    what moves of caches take, with a larger one
#
# Without VLLM_URL, two servers are started on this machine's processor and ended with the script;
# each takes 4 GB of memory, and a test starts another one to kill it. With VLLM_URL (two servers with
# the NixlConnector and --enable-scale-out, a comma between) those are used, and the tests that kill are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ENGINE=vllm
. scripts/engine-servers.sh

main() {
  local what="${1:-tests}" shape=tiny wanted=vllm::
  case "$what" in
    tests) ;;
    figures) shape=small wanted=vllm_figures ;;
    *) fail "'$what' is not known; give figures, or nothing" ;;
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
