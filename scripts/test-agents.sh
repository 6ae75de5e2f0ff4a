#!/usr/bin/env bash
# Runs Codex and Claude Code, as they come from npm (800 MB), through a daemon with simulated engines:
# each is given two commands, runs both with its own tool and ends by itself. Nothing but the
# installation needs a network.
#
#   scripts/test-agents.sh              installs both, builds treadle and runs them
#   scripts/test-agents.sh install      only installs them, in .treadle/agents; quick when they are there
#   TREADLE_BIN=PATH scripts/test-agents.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER="$PWD/.treadle/agents" CODEX=@openai/codex@0.171.0 CLAUDE=@anthropic-ai/claude-code@2.1.332
# The simulated engines answer with a call of a tool for each of these commands, then with text.
readonly TASK='Rehearse `echo one > one.txt`. Then Rehearse `cat one.txt one.txt > two.txt`.'

say() { printf 'test-agents: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

install_agents() {
  [[ "$(cat "$FOLDER/installed" 2>/dev/null)" == "$CODEX $CLAUDE" ]] && return 0
  command -v npm >/dev/null || fail "npm is missing; install Node 20 or later"
  say "installing $CODEX and $CLAUDE"
  rm -rf "$FOLDER"
  mkdir -p "$FOLDER"
  npm --prefix "$FOLDER" install --no-audit --no-fund --silent "$CODEX" "$CLAUDE" >&2 </dev/null ||
    fail "npm can't install $CODEX and $CLAUDE; check the way to the npm registry"
  # Last, so that an installation that was cut short is done again.
  printf '%s %s' "$CODEX" "$CLAUDE" >"$FOLDER/installed"
}

# Starts a daemon with simulated engines on a free port; sets URL and DAEMON.
start_daemon() {
  # Else the first look could still find the address of the last daemon.
  rm -f "$WORK/daemon.out"
  "$BIN" up --listen 127.0.0.1:0 >"$WORK/daemon.out" 2>"$WORK/daemon.log" &
  DAEMON=$!
  local waited=0
  until URL="$(sed -n 's/^treadle listens on //p' "$WORK/daemon.out" 2>/dev/null)" && [[ -n "$URL" ]]; do
    ((waited += 1))
    if ((waited > 600)) || ! kill -0 "$DAEMON" 2>/dev/null; then
      cat "$WORK/daemon.log" >&2
      fail "the daemon does not start"
    fi
    sleep 0.1
  done
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

# Fails unless both commands ran, in their order.
check_files() {
  local found
  found="$(cat "$2/one.txt" "$2/two.txt" 2>&1 | tr '\n' ' ')"
  [[ "$found" == "one one one " ]] || fail "$1 has not run both commands: $found; $(cat "$2.log")"
}

# Fails unless a program has a step for each command and one for the end, and all were streamed: only of
# these is the time of the first token known.
check_steps() {
  local program
  program="$(curl -sf "$URL/api/v1/programs?limit=100" | python3 -c '
import json, sys
programs = json.load(sys.stdin)["programs"]
print(max(programs, key=lambda program: program["steps"])["program_id"] if programs else "")')"
  [[ -n "$program" ]] || fail "$1 has sent nothing"
  curl -sf -G "$URL/api/v1/programs/$program/steps" | python3 -c '
import json, sys
steps = json.load(sys.stdin)["steps"]
seen = [(step["outcome"], step["first_token_at_us"] is not None) for step in steps]
wanted = [("tool_calls", True), ("tool_calls", True), ("stop", True)]
sys.exit(0 if seen == wanted else f"{seen}")' || fail "$1 should have two steps that call a tool and one that ends, all streamed"
  say "$1: both commands ran"
}

# Its own sandbox is off: it needs namespaces, which a container may not give.
run_codex() {
  mkdir -p "$1/.codex"
  cat >"$1/.codex/config.toml" <<END
model = "treadle-sim"
model_provider = "treadle"

[model_providers.treadle]
name = "treadle"
base_url = "$URL/v1"
wire_api = "responses"
env_key = "TREADLE_TOKEN"
END
  TREADLE_TOKEN=- "$FOLDER/node_modules/.bin/codex" exec --skip-git-repo-check --sandbox danger-full-access "$TASK"
}

run_claude() {
  ANTHROPIC_BASE_URL="$URL" ANTHROPIC_API_KEY=- CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 \
    "$FOLDER/node_modules/.bin/claude" -p "$TASK" --model treadle-sim --allowedTools Bash
}

# An agent in an empty home of its own, at engines with /v1/responses or without.
run_agent() {
  local agent=$1 engines=$2 place="$WORK/$1-$2"
  mkdir -p "$place"
  start_daemon
  [[ "$engines" == native ]] || lose_responses
  (cd "$place" && HOME="$place" "run_$agent" "$place") </dev/null >"$place.log" 2>&1 &
  AGENT=$!
  local waited=0
  while kill -0 "$AGENT" 2>/dev/null; do
    ((waited += 1))
    ((waited <= 1200)) || fail "$agent ($engines) does not end: $(cat "$place.log")"
    sleep 0.1
  done
  wait "$AGENT" || fail "$agent ($engines) failed: $(cat "$place.log")"
  check_files "$agent ($engines)" "$place"
  check_steps "$agent ($engines)"
  kill "$DAEMON" && wait "$DAEMON" 2>/dev/null || true
}

finish() {
  [[ -z "${AGENT:-}" ]] || kill "$AGENT" 2>/dev/null || true
  [[ -z "${DAEMON:-}" ]] || kill "$DAEMON" 2>/dev/null || true
  rm -rf "$WORK"
}

main() {
  install_agents
  [[ "${1:-}" != install ]] || return 0
  BIN="${TREADLE_BIN:-target/debug/treadle}"
  [[ -n "${TREADLE_BIN:-}" ]] || cargo build --locked --quiet --package treadle
  WORK="$(mktemp -d)"
  trap finish EXIT
  run_agent codex native
  run_agent codex translated
  run_agent claude native
  echo "ALL PASSED"
}

main "$@"
