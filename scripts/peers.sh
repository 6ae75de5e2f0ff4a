#!/usr/bin/env bash
# Installs other routers in .treadle/peers, to run them in front of the same engines as treadle, and
# writes .treadle/peers/peers.json: how each is started and how requests name their program. Quick
# when nothing is missing. None of their code is part of this repository.
#
#   scripts/peers.sh                  from PyPI: vllm-router, smg and sglang-router
#   scripts/peers.sh THUNDERAGENT     and ThunderAgent, from a folder with its source:
#                                     github.com/ThunderAgent-org/ThunderAgent, a7eef77 or later
#
# peers.json is a list. In a `command`:
#   {engines}            as a whole argument: one argument for each engine's URL
#   {engines_csv}        the URLs with commas between
#   {port}, {spare_port} where it listens, and a free port for anything else that it opens
#   {capacity_tokens}    what one engine's KV cache holds
#   {time_scale}         how much faster than the wall clock the engines run
#   {seconds=N}          N seconds of theirs in seconds of the wall clock: N / time_scale
#   {whole_seconds=N}    the same in whole seconds: at least 1
#   {prompt_seconds=N}   the time in which an engine computes N tokens of a prompt
# It is up when GET `ready` answers 200. A program's id goes in the header `header` and in the body's
# `body_field`, whose dots are objects within objects; its last request sets `last_field` (field, value),
# and `release` is posted {"program_id": ID} after it. The id of the program that started it goes in
# `parent_header` and `parent_field`, with `waits_field` (field, value). Null fields are not sent.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly FOLDER="$PWD/.treadle/peers"
readonly VLLM_ROUTER=0.1.17
readonly SMG=1.13.0
readonly SGLANG_ROUTER=0.3.2
# All that smg needs to route over HTTP; its package also requires gRPC.
readonly SETPROCTITLE=setproctitle==1.3.8
readonly THUNDERAGENT_PACKAGES=(fastapi==0.165.0 httpx==0.28.1 uvicorn==0.54.0)

say() { printf 'peers: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# An environment of its own for each: two of them install a command of the same name.
install() {
  local name="$1" venv="$FOLDER/$1" wanted="${*:2}"
  [[ "$(cat "$venv/installed.txt" 2>/dev/null)" == "$wanted" ]] && return 0
  say "making .treadle/peers/$name with $wanted"
  rm -rf "$venv"
  python3 -m venv "$venv" >&2 || fail "python3 has no venv; install python3-venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "${@:2}" >&2 </dev/null ||
    fail "pip can't install $wanted; check the way to PyPI"
  # Last, so that an environment that was cut short is made again.
  printf '%s\n' "$wanted" >"$venv/installed.txt"
}

# ThunderAgent has no setting for the base of its decay, 2 per second, nor for the half hour after
# which it lets a program go on whatever is free: both follow the clock that this gives it.
install_thunderagent() {
  local source="$1"
  [[ -f "$source/ThunderAgent/app.py" ]] || fail "$source has no folder ThunderAgent with its source"
  # Up to February 2026 each round of its scheduler that found paused programs failed, so that they
  # waited for half an hour.
  ! grep -q 'for state in paused_programs:' "$source/ThunderAgent/scheduler/router.py" ||
    fail "the ThunderAgent in $source never resumes a program; take a7eef77 or later from github.com/ThunderAgent-org/ThunderAgent"
  install thunderagent "${THUNDERAGENT_PACKAGES[@]}"
  rm -rf "$FOLDER/thunderagent/source"
  mkdir -p "$FOLDER/thunderagent/source"
  cp -r "$source/ThunderAgent" "$FOLDER/thunderagent/source/"
  cat >"$FOLDER/thunderagent/source/serve.py" <<'PYTHON'
import sys, time, types

scale = float(sys.argv.pop(1))
import ThunderAgent.backend.state as state, ThunderAgent.scheduler.router as router

state.time = router.time = types.SimpleNamespace(time=lambda: time.time() * scale)
router.MultiBackendRouter._wait_for_resume.__defaults__ = (1800.0 / scale,)
from ThunderAgent.__main__ import main

sys.exit(main())
PYTHON
}

write_list() {
  python3 - "$FOLDER" "$VLLM_ROUTER" "$SMG" "$SGLANG_ROUTER" <<'PYTHON'
import json, os, re, sys

folder, vllm_router, smg, sglang_router = sys.argv[1:]
peers = []


TOLD = "header parent_header body_field parent_field waits_field last_field release".split()


def add(name, version, command, ready, header=None, **told):
    engines = "{engines}" if "{engines}" in command else "{engines_csv}"
    peers.append({
        "name": name, "version": version, "command": command, "engines": engines, "ready": ready,
        **{key: None for key in TOLD}, "header": header, **told,
    })


def rust(environment, program, log_level):
    """The three that share an ancestor, and with it most options."""
    where = "--host 127.0.0.1 --port {port} --prometheus-host 127.0.0.1 --prometheus-port {spare_port}"
    quick = "--worker-startup-check-interval 1"
    command = [os.path.join(folder, environment, "bin", program[0]), *program[1:]]
    return [*command, *f"{where} {quick} --log-level {log_level} --worker-urls {{engines}}".split()]


# The costs are those of the engine models that it is compared on (tests/engines/independent.py,
# host/engine-sim), as its guide asks to calibrate them: 20 ms a step, what prefill takes, 0.4 ms a
# sequence.
program = {
    "global_queue": True,
    "token_capacity_per_target": "{capacity_tokens}",
    "metrics_interval_seconds": "{seconds=1}",
    "queue_timeout_seconds": "{seconds=600}",
    "force_resume_timeout_seconds": "{seconds=300}",
    "paused_retention_ttl_seconds": "{seconds=1800}",
    "shared_prefix_freshness_warmup_seconds": "{seconds=100}",
    "max_acting_ttl_seconds": "{seconds=10}",
    "prefill_cost_model": {
        "intercept_seconds": "{seconds=0.02}",
        "linear_seconds_per_1k_tokens": "{prompt_seconds=1000}",
        "quadratic_seconds_per_1k_tokens_squared": 0.0,
        "decode_throughput_alpha": 0.04,
    },
    "decode_throughput_model": {
        "fixed_step_seconds": "{seconds=0.02}",
        "batch_step_seconds_per_request": "{seconds=0.0004}",
        "context_step_seconds_per_token": 0.0,
    },
}
# Places stand for numbers: without quotes.
program = re.sub(r'"(\{[a-z_]+(=[0-9.]+)?\})"', r"\1", json.dumps(program, separators=(",", ":")))

session, context = "X-Session-ID", "vllm_xargs.agentic_context"
command = rust("vllm-router", ["vllm-router"], "warning")
with_programs = ["--policy", "consistent_hash", "--enable-program-scheduling"]
add("vllm-router-program", vllm_router,
    [*command, *with_programs, "--program-scheduling-config-json", program], "/health",
    session, body_field=f"{context}.program_id", parent_field=f"{context}.parent_program_id",
    waits_field=[f"{context}.blocks_parent", True], last_field=[f"{context}.expected_resume", False])
# vLLM 0.26 refuses an object in `vllm_xargs`: in front of it only the header names the program.
add("vllm-router-program-header", vllm_router,
    [*command, *with_programs, "--program-scheduling-config-json", program], "/health", session)
add("vllm-router-sticky", vllm_router, [*command, "--policy", "consistent_hash"], "/health", session)
add("vllm-router-round-robin", vllm_router, [*command, "--policy", "round_robin"], "/health")

command = rust("smg", ["smg", "launch"], "warn")
command += "--backend vllm --disable-tokenizer-autoload --policy cache_aware".split()
# By default it moves requests off an engine whose KV cache is 80% full, which here is all the time and
# costs it steps if the engines have host memory.
command += ["--disable-worker-overload-protection"]
command += ["--load-monitor-interval", "{whole_seconds=10}", "--worker-warmup-secs", "{whole_seconds=60}"]
command += ["--eviction-interval-secs", "{whole_seconds=60}"]
add("smg-cache-aware", smg, command, "/readiness")
sticky = ["--sticky-sessions", "--routing-key-headers", "x-session-id"]
add("smg-sticky", smg, [*command, *sticky], "/readiness", session)
# Names that end in -dp-aware run only in front of engines with ranks.
add("smg-sticky-dp-aware", smg, [*command, *sticky, "--dp-aware"], "/readiness", session)

command = rust("sglang-router", ["sglang-router", "launch"], "warn")
# By default it moves no request before one engine has 64 more than the other: fewer agents than that
# share a prompt and all go to one engine.
balance = "--balance-abs-threshold 4 --balance-rel-threshold 1.1 --cache-threshold 0.5".split()
evict = ["--eviction-interval-secs", "{whole_seconds=60}"]
add("sglang-router-cache-aware", sglang_router,
    [*command, "--policy", "cache_aware", *balance, *evict], "/readiness")
sticky = ["--policy", "manual", "--assignment-mode", "min_group"]
add("sglang-router-sticky", sglang_router, [*command, *sticky], "/readiness", "X-SMG-Routing-Key")
add("sglang-router-sticky-dp-aware", sglang_router, [*command, *sticky, "--dp-aware"], "/readiness",
    "X-SMG-Routing-Key")

source = os.path.join(folder, "thunderagent", "source")
if os.path.exists(source):
    version = re.search(r'__version__ = "(.*)"', open(os.path.join(source, "ThunderAgent/__init__.py")).read())
    command = [os.path.join(folder, "thunderagent/bin/python"), os.path.join(source, "serve.py"), "{time_scale}"]
    command += "--host 127.0.0.1 --port {port} --backends {engines_csv} --log-level warning".split()
    command += ["--metrics", "--metrics-interval", "{seconds=5}", "--scheduler-interval", "{seconds=5}"]
    told = {"body_field": "program_id", "release": "/programs/release"}
    add("thunderagent", version[1], command, "/health", **told)
    # The paper's settings: checks every 5 s and watermarks of 1 are the defaults, its decay is not.
    add("thunderagent-paper", version[1], [*command, "--use-acting-token-decay"], "/health", **told)

with open(os.path.join(folder, "peers.json"), "w") as out:
    json.dump(peers, out, indent=2)
    out.write("\n")
print("\n".join(peer["name"] for peer in peers))
PYTHON
}

main() {
  local source="${1:+$(realpath "$1")}"
  mkdir -p "$FOLDER"
  install vllm-router "vllm-router==$VLLM_ROUTER"
  install smg --no-deps "smg==$SMG" "$SETPROCTITLE"
  install sglang-router "sglang-router==$SGLANG_ROUTER"
  [[ -z "$source" ]] || install_thunderagent "$source"
  write_list
}

main "$@"
