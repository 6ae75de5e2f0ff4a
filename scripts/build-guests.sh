#!/usr/bin/env bash
# Builds the policies in plugins/ to target/guests/<name>.wasm, ready for upload.
# Quick when nothing changed.
#
#   scripts/build-guests.sh rust     those in Rust, which building treadle needs
#   scripts/build-guests.sh scripts  those in Python and TypeScript; `scripts/setup.sh test` installs
#                                    what they need
#   scripts/build-guests.sh all      both (the default)
#
# TREADLE_GUEST_TOOLCHAIN chooses what builds them:
#   rustup  the target wasm32-unknown-unknown of the rustup toolchain in use
#   debian  Debian's rustc-web, cargo-web, rust-web-src and lld
#   auto    rustup if it works, else debian (the default)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGET=wasm32-unknown-unknown
readonly BUILD_DIR=target/guest-build
readonly GUEST_DIR=target/guests
readonly TOOLCHAIN="${TREADLE_GUEST_TOOLCHAIN:-auto}"
readonly DEBIAN_PACKAGES=(rustc-web cargo-web rust-web-src lld)
readonly STAMP_DIR=target/guest-build/stamps
readonly COMPONENTIZE_PY=.treadle/venv/bin/componentize-py
# Every host of the guests has vectors; loops over columns are several times as fast with them.
readonly GUEST_RUSTFLAGS="-C target-feature=+simd128"
readonly NODE_BIN=sdk/typescript/node_modules/.bin

say() { printf 'build-guests: %s\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

# Whether the compiler that cargo uses here has the standard library of the target.
# Asked of the compiler, so that toolchains without rustup count too.
has_target() {
  local libs
  libs="$(rustc --print target-libdir --target "$TARGET" 2>/dev/null)" || return 1
  compgen -G "$libs/libstd-*.rlib" >/dev/null
}

ensure_rustup() {
  has_target && return 0
  command -v rustup >/dev/null || return 1
  say "installing the target $TARGET with rustup"
  rustup target add "$TARGET" >&2 && has_target
}

debian_missing() {
  local package
  for package in "${DEBIAN_PACKAGES[@]}"; do
    dpkg -s "$package" >/dev/null 2>&1 || printf '%s\n' "$package"
  done
}

ensure_debian() {
  command -v dpkg >/dev/null && command -v apt-get >/dev/null || return 1
  local missing
  mapfile -t missing < <(debian_missing)
  ((${#missing[@]} == 0)) && return 0
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
  fi
  say "installing with apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get update -q >&2 || return 1
  "${as_root[@]}" apt-get install -qy --no-install-recommends "${missing[@]}" >&2
}

choose() {
  case "$TOOLCHAIN" in
    rustup | auto) if ensure_rustup; then printf 'rustup\n' && return; fi ;;
    debian) ;;
    *) fail "TREADLE_GUEST_TOOLCHAIN is '$TOOLCHAIN'; give rustup, debian or auto" ;;
  esac
  if [[ "$TOOLCHAIN" != rustup ]] && ensure_debian; then
    printf 'debian\n' && return
  fi
  fail "no toolchain for $TARGET; run 'rustup target add $TARGET'," \
    "or on Debian install ${DEBIAN_PACKAGES[*]}"
}

# Plugins are named by their folders; the packages have the same names.
plugins() {
  local manifest
  for manifest in plugins/*/Cargo.toml; do
    basename "$(dirname "$manifest")"
  done
}

build() {
  local toolchain=$1 packages=() name
  shift
  for name in "$@"; do packages+=(-p "$name"); done
  local options=(build --quiet --profile guest --target "$TARGET" --lib "${packages[@]}")
  case "$toolchain" in
    rustup)
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$GUEST_RUSTFLAGS" \
        cargo "${options[@]}" --target-dir "$BUILD_DIR"
      ;;
    # Debian ships no standard library for the target, so it is built from source;
    # --locked because its cargo may be newer and would rewrite the lock file.
    debian)
      CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$GUEST_RUSTFLAGS" \
        RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
        /usr/bin/cargo "${options[@]}" --target-dir "$BUILD_DIR-debian" \
        --locked -Z build-std=std,panic_abort
      ;;
  esac
}

build_rust() {
  local toolchain names name from to
  toolchain="$(choose)"
  mapfile -t names < <(plugins)
  build "$toolchain" "${names[@]}"

  local built="$BUILD_DIR"
  [[ "$toolchain" == debian ]] && built="$BUILD_DIR-debian"
  mkdir -p "$GUEST_DIR"
  for name in "${names[@]}"; do
    from="$built/$TARGET/guest/${name//-/_}.wasm"
    to="$GUEST_DIR/${name//-/_}.wasm"
    [[ -f "$from" ]] || fail "$name built no module; its Cargo.toml needs crate-type = [\"cdylib\", \"rlib\"]"
    if ! cmp -s "$from" "$to"; then
      # By rename, so that a reader never sees half a file.
      cp "$from" "$to.new" && mv "$to.new" "$to"
      say "$to ($(wc -c <"$to") bytes, $toolchain)"
    fi
  done
}

# One line that identifies all sources of a script's component.
sources_digest() {
  local folder=$1 sdk=$2
  find "$folder" "$sdk" wit -type f \
    -not -path '*/node_modules/*' -not -path '*/__pycache__/*' -not -path '*/dist/*' \
    -not -path '*/template/*' -print0 |
    sort -z | xargs -0 sha256sum | sha256sum
}

# A value from the manifest of a plugin, such as `world = "priority"` or `"world": "priority"`.
setting() {
  sed -nE "s/^ *\"?$2\"? *[:=] *\"([^\"]*)\".*/\\1/p" "$1" | head -n 1
}

build_python() {
  local folder=$1 to=$2 manifest="$1/pyproject.toml"
  [[ -x "$COMPONENTIZE_PY" ]] ||
    fail "$COMPONENTIZE_PY is missing, which $folder needs; run scripts/setup.sh test"
  PYTHONDONTWRITEBYTECODE=1 "$COMPONENTIZE_PY" --quiet --wit-path wit \
    --world "$(setting "$manifest" world)" componentize --stub-wasi \
    --python-path "$folder" --python-path sdk/python --output "$to" \
    "$(setting "$manifest" module)"
}

build_typescript() {
  local folder=$1 to=$2 manifest="$1/package.json" script="$2.mjs"
  [[ -x "$NODE_BIN/componentize-qjs" ]] ||
    fail "$NODE_BIN/componentize-qjs is missing, which $folder needs; run scripts/setup.sh test"
  "$NODE_BIN/tsc" --noEmit --project "$folder"
  "$NODE_BIN/esbuild" "$folder/$(setting "$manifest" main)" --bundle --format=esm \
    --target=es2022 '--external:treadle:*' --log-level=warning "--outfile=$script"
  "$NODE_BIN/componentize-qjs" --wit wit --js "$script" --world "$(setting "$manifest" world)" \
    --stub-wasi --sync --output "$to" >/dev/null
  rm -f "$script"
}

# Builds a plugin in a scripting language if its sources have changed.
build_script() {
  local language=$1 folder=$2 name to stamp digest
  name="$(basename "$folder")"
  to="$GUEST_DIR/${name//-/_}.wasm"
  stamp="$STAMP_DIR/$name"
  digest="$(sources_digest "$folder" "sdk/$language")"
  [[ -f "$to" && -f "$stamp" && "$(<"$stamp")" == "$digest" ]] && return 0
  mkdir -p "$GUEST_DIR" "$STAMP_DIR"
  "build_$language" "$folder" "$to.new"
  mv "$to.new" "$to"
  say "$to ($(wc -c <"$to") bytes, $language)"
  # Last, so that a build that was cut short is done again.
  printf '%s\n' "$digest" >"$stamp"
}

build_scripts() {
  local folder
  for folder in plugins/*/; do
    folder="${folder%/}"
    if [[ -f "$folder/pyproject.toml" ]]; then
      build_script python "$folder"
    elif [[ -f "$folder/package.json" ]]; then
      build_script typescript "$folder"
    fi
  done
}

main() {
  case "${1:-all}" in
    rust) build_rust ;;
    all)
      build_rust
      build_scripts
      ;;
    scripts) build_scripts ;;
    *) fail "'$1' is not known; give rust, scripts or all" ;;
  esac
}

main "$@"
