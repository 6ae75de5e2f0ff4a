#!/usr/bin/env bash
# Builds every crate in plugins/ to target/guests/<name>.wasm: core modules with
# their WIT embedded, as treadle takes them. Quick when nothing changed.
#
# TREADLE_GUEST_TOOLCHAIN chooses what builds them:
#   rustup  the target wasm32-unknown-unknown of the rustup toolchain in use
#   debian  Debian's rustc-web, cargo-web, rust-web-src and lld
#   auto    rustup where it works, else debian (the default)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGET=wasm32-unknown-unknown
readonly BUILD_DIR=target/guest-build
readonly GUEST_DIR=target/guests
readonly TOOLCHAIN="${TREADLE_GUEST_TOOLCHAIN:-auto}"
readonly DEBIAN_PACKAGES=(rustc-web cargo-web rust-web-src lld)

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
    rustup) cargo "${options[@]}" --target-dir "$BUILD_DIR" ;;
    # Debian ships no standard library for the target, so it is built from source;
    # --locked because its cargo may be newer and would rewrite the lock file.
    debian)
      RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
        /usr/bin/cargo "${options[@]}" --target-dir "$BUILD_DIR-debian" \
        --locked -Z build-std=std,panic_abort
      ;;
  esac
}

main() {
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

main
