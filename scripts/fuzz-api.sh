#!/usr/bin/env bash
# Sends the daemon requests made from its OpenAPI document, right ones and wrong ones, with
# Schemathesis: no answer may be a fault of the daemon, or one that the document does not have.
#
#   scripts/fuzz-api.sh SECONDS [SEED]   any seed unless one is given
#
# The engines are simulated, the store is in memory, and all callers are admins. Requests that take the
# engines away are left out: without them every request is refused. So are paths that mirror another
# service's 5xx status: those of SWE-ReX, and unsupported ones of E2B. Sandboxes are off: requests to
# their paths only test the refusal.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly SECONDS_MAX="${1:?give the seconds to run}"
readonly SEED="${2:-$RANDOM}"
readonly BINARY=target/debug/treadle
readonly SCHEMATHESIS=.treadle/venv/bin/schemathesis
readonly LOG=target/fuzz-api.log

say() { printf 'fuzz-api: %s\n' "$*" >&2; }

[[ -x "$SCHEMATHESIS" ]] || { say "Schemathesis is missing; run scripts/setup.sh test"; exit 1; }

port="$(.treadle/venv/bin/python -c \
  'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
readonly url="http://127.0.0.1:$port"
"$BINARY" up --instant --listen "127.0.0.1:$port" --set store.path=memory \
  --set auth.anonymous_scope=admin >"$LOG" 2>&1 &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true' EXIT
for _ in {1..100}; do
  grep -q "Send a first request" "$LOG" && break
  kill -0 "$daemon" 2>/dev/null || { cat "$LOG" >&2; exit 1; }
  sleep 0.1
done

say "requests to $url for $SECONDS_MAX s; the daemon's log is $LOG"
"$SCHEMATHESIS" run "$url/openapi.json" --seed "$SEED" --max-time "$SECONDS_MAX" --max-examples 1000 --no-color \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --generation-database none --suppress-health-check all --exclude-path-regex '^/(remove_worker|api/v1/stream|swerex/.*|snapshots|volumes|(v[23]/)?templates.*|(v2/)?sandboxes/.*/\{call\})$' \
  --exclude-operation-id workers_remove --exclude-operation-id delete_workers_worker
