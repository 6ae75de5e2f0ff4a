# Servers of an engine for tests, ended with the script that sources this after it has set ENGINE to
# vllm or sglang.

readonly PYTHON=".treadle/$ENGINE-venv/bin/python"

say() { printf 'test-%s: %s\n' "$ENGINE" "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

FOLDER=""
# Further arguments of the servers.
SERVER_ARGS=()
# Only this process holds it open: a server ends when its input does.
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

# Starts a server in the background; its output goes to a file.
start() {
  local name="$1" input
  exec {input}> >(exec "$PYTHON" "tests/engines/${ENGINE}_server.py" "$FOLDER/model" \
    "$FOLDER/$name.log" "${SERVER_ARGS[@]}" >"$FOLDER/$name.json")
  INPUTS+=("$input")
  eval "PID_$name=$!"
}

# Waits for a server's first line, and prints its URL.
url_of() {
  local name="$1" pid_name="PID_$1"
  while [[ ! -s "$FOLDER/$name.json" ]]; do
    if ! kill -0 "${!pid_name}" 2>/dev/null; then
      tail -n 40 "$FOLDER/$name.log" >&2
      fail "a server did not start"
    fi
    sleep 0.5
  done
  "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["url"])' <"$FOLDER/$name.json"
}

# Installs the engine, makes a model of a shape (tiny, medium, small) in $FOLDER/model and starts two servers;
# their URLs are then in URLS, with a comma between.
start_two() {
  local shape="$1" first second
  scripts/setup.sh "$ENGINE"
  FOLDER="$(mktemp -d)"
  trap end EXIT
  "$PYTHON" tests/engines/hf_model.py "$FOLDER/model" "$shape"
  say "starting two servers, which takes minutes"
  start first
  start second
  first="$(url_of first)"
  second="$(url_of second)"
  URLS="$first,$second"
}

# Makes versions 1 and 2 of a shape's model, with other weights, for the tests of weight updates.
make_versions() {
  local shape="$1" version
  export TREADLE_TEST_WEIGHTS="$FOLDER/weights"
  for version in 1 2; do
    "$PYTHON" tests/engines/hf_model.py "$TREADLE_TEST_WEIGHTS/$version" "$shape" "$version"
  done
}

# Runs ignored end-to-end tests by parts of their names, and arguments of the test program. One at a
# time: each reads the servers' counters.
run_ignored() {
  # Tests run its command line.
  cargo build --locked --package treadle
  cargo test --locked --workspace --test e2e -- --ignored --nocapture --test-threads=1 "$@"
}
