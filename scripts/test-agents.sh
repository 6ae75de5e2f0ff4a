#!/usr/bin/env bash
# Runs Codex and Claude Code, as they come from npm (800 MB), through a daemon with simulated engines:
# each does a task with calls of tools until it ends by itself. Nothing but the installation needs a
# network.
#
#   scripts/test-agents.sh              builds treadle and runs both
#   TREADLE_BIN=PATH scripts/test-agents.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER="$PWD/.treadle/agents" CODEX=@openai/codex@0.171.0 CLAUDE=@anthropic-ai/claude-code@2.1.332

fail() {
  printf 'test-agents: %s\n' "$*" >&2
  exit 1
}

install_agents() {
  [[ "$(cat "$FOLDER/installed" 2>/dev/null)" == "$CODEX $CLAUDE" ]] && return 0
  command -v npm >/dev/null || fail "npm is missing; install Node 20 or later"
  rm -rf "$FOLDER"
  mkdir -p "$FOLDER"
  npm --prefix "$FOLDER" install --no-audit --no-fund --silent "$CODEX" "$CLAUDE" >&2 </dev/null ||
    fail "npm can't install $CODEX and $CLAUDE; check the way to the npm registry"
  printf '%s %s' "$CODEX" "$CLAUDE" >"$FOLDER/installed"
}

# Starts a daemon with simulated engines on a free port; sets URL and DAEMON.
start_daemon() {
  local port
  port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
  URL="http://127.0.0.1:$port"
  "$BIN" up --listen "127.0.0.1:$port" >"$WORK/daemon.log" 2>&1 &
  DAEMON=$!
  for _ in $(seq 300); do
    curl -sf "$URL/health" >/dev/null && return 0
    kill -0 "$DAEMON" 2>/dev/null || break
    sleep 0.1
  done
  cat "$WORK/daemon.log" >&2
  fail "the daemon does not start"
}

# Has the engines have no /v1/responses.
lose_responses() {
  local engine
  curl -sf "$URL/api/v1/workers" |
    python3 -c 'import json, sys; print(*(w["url"] for w in json.load(sys.stdin)["workers"]), sep="\n")' |
    while read -r engine; do
      curl -sf -X PUT "$engine/sim/faults" -d '{"no_responses": true}' >/dev/null || fail "no faults at $engine"
    done
}

# Fails unless the daemon has seen a program with this many steps or more.
check_steps() {
  local steps
  steps="$(curl -sf "$URL/api/v1/programs?limit=100" |
    python3 -c 'import json, sys; print(max([p["steps"] for p in json.load(sys.stdin)["programs"]], default=0))')"
  ((steps >= $1)) || fail "$2 has sent $steps steps and not $1"
  printf 'test-agents: %s: %s steps\n' "$2" "$steps" >&2
}

run_codex() {
  mkdir -p "$WORK/codex/.codex" "$WORK/codex/work"
  cat >"$WORK/codex/.codex/config.toml" <<END
model = "treadle-sim"
model_provider = "treadle"

[model_providers.treadle]
name = "treadle"
base_url = "$URL/v1"
wire_api = "responses"
env_key = "TREADLE_TOKEN"
END
  (cd "$WORK/codex/work" && HOME="$WORK/codex" TREADLE_TOKEN=- timeout 120 \
    "$FOLDER/node_modules/.bin/codex" exec --skip-git-repo-check "Say hello" </dev/null >"$WORK/codex.log" 2>&1) ||
    { cat "$WORK/codex.log" >&2 && fail "Codex failed"; }
}

run_claude() {
  mkdir -p "$WORK/claude/work"
  (cd "$WORK/claude/work" && HOME="$WORK/claude" ANTHROPIC_BASE_URL="$URL" ANTHROPIC_API_KEY=- \
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 timeout 120 \
    "$FOLDER/node_modules/.bin/claude" -p "Say hello" --model treadle-sim </dev/null >"$WORK/claude.log" 2>&1) ||
    { cat "$WORK/claude.log" >&2 && fail "Claude Code failed"; }
}

finish() {
  [[ -z "${DAEMON:-}" ]] || kill "$DAEMON" 2>/dev/null || true
  rm -rf "$WORK"
}

main() {
  install_agents
  BIN="${TREADLE_BIN:-target/debug/treadle}"
  [[ -n "${TREADLE_BIN:-}" ]] || cargo build --locked --quiet --package treadle
  WORK="$(mktemp -d)"
  trap finish EXIT
  local agent engines
  for engines in native translated; do
    for agent in codex claude; do
      [[ "$engines-$agent" == translated-claude ]] && continue
      start_daemon
      [[ "$engines" == native ]] || lose_responses
      "run_$agent"
      check_steps 1 "$agent ($engines)"
      kill "$DAEMON" && wait "$DAEMON" 2>/dev/null || true
    done
  done
  echo "ALL PASSED"
}

main
