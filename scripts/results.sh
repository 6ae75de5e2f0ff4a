#!/usr/bin/env bash
# Runs commands behind docs/results.md, one after another, and keeps what each prints. The page itself has
# nothing of `core`, `placement` and `restart`.
#
#   scripts/results.sh              all of them, which takes hours
#   scripts/results.sh NAME ...     some of them
#
# Left out are the figures of real engines and GPUs (peers, jobs, what-if and calibrate with --engines or
# --url, scripts/test-vllm.sh, make bench-vllm), training, weights,
# sdk/python/treadle_rl/tests/skyrl_compare.py, tests/engines/independent.py, make chaos, builds of
# policies, shell-actions with --sandboxes or --postgres, sandboxes (Linux, as root), and figures in its
# text that are of other seeds or options. Of other routers, all that are installed run.
#
# A result goes to .treadle/results/NAME.json, and its command, commit, date and duration to NAME.txt
# beside it. TRACE=FILE adds the recorded agents of a file (docs/traces.md). Let nothing else run.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER=.treadle/results
readonly BENCH=target/release/treadle-bench
readonly DEMO="target/release/treadle demo --simulate --json"

say() { printf 'results: %s\n' "$*" >&2; }

# NAME, then its command in one line.
commands() {
  echo "demo $DEMO"
  echo "demo-host-third $DEMO --engine-host 0.333"
  echo "demo-host-ample $DEMO --engine-host 2"
  [[ -z "${TRACE:-}" ]] || echo "demo-recorded $DEMO --trace $TRACE"
  echo "peers $BENCH peers --kv 0.333,0.25 --seed 21 --seeds 5 --minutes 6 --json"
  local live name seed share
  for live in 16 128 256; do
    echo "peers-$live $BENCH peers --kv 0.333 --live $live --seed 21 --seeds 1 --minutes 6 --json"
  done
  echo "peers-sessions $BENCH peers --workload sessions --kv 0.333 --seed 31 --seeds 2 --json"
  [[ -z "${TRACE:-}" ]] || echo "peers-recorded $BENCH peers --trace $TRACE --kv 0.333 --seed 31 --seeds 2 --json"
  for live in 10000 20000 40000 60000; do
    for name in "$live" "$live-attention"; do
      for seed in 1 2; do
        echo "engine-$name-$seed $DEMO --profile $FOLDER/profile-$name.json --seed $seed"
      done
      echo "peers-engine-$name $BENCH peers --profile $FOLDER/profile-$name.json --kv 0.333 --seed 21 --seeds 1 --minutes 6 --json"
    done
  done
  echo "eviction $BENCH eviction ${TRACE:+--trace $TRACE} --seeds 3 --json"
  for share in 0 0.333 2; do
    echo "eviction-host-$share $BENCH eviction --engine-host $share --seed 11 --seeds 5 --minutes 10 --json"
  done
  echo "eviction-others $BENCH eviction --scenes slow-tools,coding,search,math --minutes 20 --seeds 3 --json"
  echo "rollout $BENCH rollout --json"
  echo "actions $BENCH actions --virtual-time --seed 6 --seeds 10 --json"
  echo "decisions $BENCH actions --decisions --json"
  echo "shell-actions $BENCH shell-actions --json"
  echo "restart $BENCH restart --json"
  for seed in 2 3 4 5 6; do
    echo "prediction-$seed $BENCH prediction ${TRACE:+--trace $TRACE} --seed $seed --json"
  done
  echo "jobs $BENCH jobs --time-scale 20 --seed 32 --seeds 2 --json"
  echo "jobs-33 $BENCH jobs --tasks coding --time-scale 30 --seed 33 --seeds 1 --json"
  echo "jobs-34 $BENCH jobs --tasks coding --time-scale 40 --seed 34 --seeds 1 --json"
  for name in gateway core events placement policy what-if; do
    echo "$name $BENCH $name --json"
  done
}

# GLM-4.6 on 8 H100 with other prefill speeds. Its attention adds 4.5 MFLOP (92 layers of 96 heads of
# 128, queries by keys and weights by values) for each token before, to 64 GFLOP a token: 7.2% for
# each 1,024.
profiles() {
  local speed
  for speed in 10000 20000 40000 60000; do
    profile "$speed" 0 >"$FOLDER/profile-$speed.json"
    profile "$speed" $((72000000000 / speed)) >"$FOLDER/profile-$speed-attention.json"
  done
}

# SPEED in tokens a second, and the extra time of attention in picoseconds.
profile() {
  cat <<EOF
{"version": 1, "profile": {"name": "glm-4.6-8xh100 at $1 tokens/s, attention $2 ps",
 "prefill_tokens_per_s": $1, "prefill_per_kilotoken_context_ps": $2,
 "decode_base_us": 22000, "decode_per_sequence_us": 60, "decode_per_kilotoken_context_ns": 14000,
 "batched_tokens_max": 8192, "running_max": 256, "kv_blocks": 43750, "block_tokens": 16,
 "context_limit_tokens": 131072, "stream_interval_tokens": 1}}
EOF
}

measure() {
  local name="$1" began=$SECONDS
  shift
  say "$name: $*"
  # Written atomically.
  "$@" >"$FOLDER/$name.part" || return 1
  mv "$FOLDER/$name.part" "$FOLDER/$name.json"
  {
    echo "command: $*"
    echo "commit: $(git describe --always --dirty)"
    echo "date: $(date --utc +%F)"
    echo "seconds: $((SECONDS - began))"
  } >"$FOLDER/$name.txt"
}

main() {
  local known line name failed=()
  known="$(commands)"
  for name in "$@"; do
    grep -q "^$name " <<<"$known" && continue
    say "'$name' is not known; give some of: $(cut -d' ' -f1 <<<"$known" | xargs)"
    exit 1
  done
  mkdir -p "$FOLDER"
  profiles
  while read -r line; do
    name="${line%% *}"
    [[ $# == 0 || " $* " == *" $name "* ]] || continue
    # shellcheck disable=SC2086 # the words of a command
    measure $line </dev/null || failed+=("$name")
  done <<<"$known"
  [[ ${#failed[@]} == 0 ]] || { say "failed: ${failed[*]}"; exit 1; }
}

main "$@"
