#!/usr/bin/env bash
# Runs the tests that need real SGLang servers.
#
#   scripts/test-sglang.sh [MODULE ...]   all of them, or those of some modules, such as weights
#
# Without SGLANG_URL, two servers with a tiny model are started on this machine's processor and ended
# with the script; each takes 3.5 GB of memory. With SGLANG_URL (two servers of the same model, started
# with --enable-metrics, --enable-cache-report and --enable-priority-scheduling, a comma between) those
# are used, and the tests of weight updates are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly ENGINE=sglang
. scripts/engine-servers.sh

main() {
  local wanted=("${@/#/sglang::}")
  if [[ -n "${SGLANG_URL:-}" ]]; then
    export TREADLE_TEST_SGLANG_URL="$SGLANG_URL"
  else
    start_two tiny
    make_versions tiny
    export TREADLE_TEST_SGLANG_URL="$URLS"
  fi
  run_ignored "${wanted[@]:-sglang::}"
}

main "$@"
