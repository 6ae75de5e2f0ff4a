#!/usr/bin/env bash
# Runs the tests that need real vLLM servers.
#
#   scripts/test-vllm.sh            the tests, with a tiny model
#   scripts/test-vllm.sh figures    what moves of caches take, with a larger one
#
# Without VLLM_URL, two servers are started on this machine's processor and ended with the script;
# each takes 4 GB of memory, and a test starts another one to kill it. With VLLM_URL (two servers with
# the NixlConnector, a comma between) those are used, and the tests that kill are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PYTHON=.treadle/vllm-venv/bin/python

say() { printf 'test-vllm: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

FOLDER=""
# Held open by this process alone: a server ends when its input does.
INPUTS=()

end() {
  local input
  for input in "${INPUTS[@]}"; do
    exec {input}>&-
  done
  # The servers write their last lines there.
  wait || true
  [[ -z "$FOLDER" ]] || rm -rf "$FOLDER"
}

# Starts a server in the background; what it says goes to a file.
start() {
  local name="$1" input
  exec {input}> >(exec "$PYTHON" tests/engines/vllm_server.py "$FOLDER/model" "$FOLDER/$name.log" \
    >"$FOLDER/$name.json")
  INPUTS+=("$input")
  eval "PID_$name=$!"
}

# Waits for what a server says, and gives its URL.
url_of() {
  local name="$1" pid_name="PID_$1"
  while [[ ! -s "$FOLDER/$name.json" ]]; do
    if ! kill -0 "${!pid_name}" 2>/dev/null; then
      tail -n 40 "$FOLDER/$name.log" >&2
      fail "a vLLM server did not start"
    fi
    sleep 0.5
  done
  "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["url"])' <"$FOLDER/$name.json"
}

start_servers() {
  local shape="$1" first second
  scripts/setup.sh vllm
  FOLDER="$(mktemp -d)"
  trap end EXIT
  "$PYTHON" tests/engines/hf_model.py "$FOLDER/model" "$shape"
  say "starting two vLLM servers, which takes minutes"
  start first
  start second
  first="$(url_of first)"
  second="$(url_of second)"
  export TREADLE_TEST_VLLM_URL="$first,$second"
  export TREADLE_TEST_VLLM_PYTHON="$PWD/$PYTHON" TREADLE_TEST_VLLM_MODEL="$FOLDER/model"
}

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
    start_servers "$shape"
  fi
  local skipped=()
  [[ "$what" == figures ]] || skipped=(--skip vllm_figures)
  # One at a time: each looks at what the servers count.
  cargo test --locked --workspace --test e2e -- --ignored --nocapture --test-threads=1 \
    "${skipped[@]}" "$wanted"
}

main "$@"
