#!/usr/bin/env bash
# Tests the console in Chromium, over a daemon of its own with simulated engines and agents at work.
#
#   scripts/test-console.sh               the tests
#   scripts/test-console.sh screenshots   pictures of every page, into web/screenshots
set -euo pipefail
cd "$(dirname "$0")/.."

readonly BINARY="${TREADLE:-target/debug/treadle}"
readonly POLICY=target/guests/lru_eviction.wasm
# Until the first agents have ended.
readonly WARM_UP_S=90

say() { printf 'test-console: %s\n' "$*" >&2; }

FOLDER="$(mktemp -d)"
DAEMON=""
AGENTS=""

end() {
  [[ -z "$AGENTS" ]] || kill "$AGENTS" 2>/dev/null || true
  [[ -z "$DAEMON" ]] || kill "$DAEMON" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$FOLDER"
}
trap end EXIT

# Sets URL and TOKEN.
start_daemon() {
  "$BINARY" up --listen 127.0.0.1:0 --engines 3 --kv-tokens 40000 --time-scale 10 \
    --set payloads.keep=all --set kv.host_tokens_max=60000 --set kv.migration_tokens_per_s=200000 \
    --set actions.enabled=true --set actions.gpus=0,1,2,3 --set "actions.workdir=$FOLDER" \
    --set "store.path=$FOLDER/console.db" \
    >"$FOLDER/out" 2>"$FOLDER/log" &
  DAEMON=$!
  local waited=0
  until URL="$(sed -n 's/^treadle listens on //p' "$FOLDER/out")" && [[ -n "$URL" ]]; do
    ((waited += 1))
    if ((waited > 300)) || ! kill -0 "$DAEMON" 2>/dev/null; then
      cat "$FOLDER/log" >&2
      say "the daemon does not start"
      return 1
    fi
    sleep 0.1
  done
  TOKEN="$(<"$FOLDER/admin-token")"
}

start_agents() {
  node web/tests/workload.mjs --daemon "$URL" --agents 40 --seconds 3600 >"$FOLDER/agents" 2>&1 &
  AGENTS=$!
  local waited=0 finished="$URL/api/v1/programs?status=finished&limit=1"
  until node -e 'fetch(process.argv[1]).then((a) => a.text()).then((t) => process.exit(t.includes("program_id") ? 0 : 1), () => process.exit(1))' "$finished"; do
    ((waited += 1))
    ((waited <= WARM_UP_S)) || { say "no agent has ended"; return 1; }
    sleep 1
  done
}

# One action of each outcome on the page of actions; the first has an output.
run_actions() {
  local run=("$BINARY" actions run --url "$URL" --token "$TOKEN" --)
  "${run[@]}" sh -c 'echo hello; nproc' >/dev/null
  "${run[@]}" sh -c 'exit 3' >/dev/null || (($? == 3))
  "${run[@]}" sh -c 'kill -9 $$' >/dev/null || (($? == 137))
  "${run[@]}" /no/such/program >/dev/null || (($? == 125))
}

main() {
  if [[ ! -f web/dist/index.html || -n "${TREADLE_SKIP_BROWSER_TESTS:-}" ]]; then
    say "there is no console, or no browser: not tested"
    return 0
  fi
  CHROMIUM="$(command -v "${CHROMIUM:-chromium}")" || { say "there is no Chromium; scripts/setup.sh browser installs it"; return 1; }
  export CHROMIUM
  start_daemon
  start_agents
  run_actions
  local run=test:e2e
  [[ "${1:-}" != screenshots ]] || run=screenshots
  npm --prefix web run --silent "$run" -- \
    --base "$URL" --daemon "$URL" --token "$TOKEN" --policy "$PWD/$POLICY"
}

main "$@"
