# Shared by every script in dev/: where things are cached, what must be installed, how RocksDB is built once.
#
# Sourced, never run. Every cargo call of dev/ and .ci/run goes through this file, so that all of them see the same
# environment: a different one would make cargo compile RocksDB again.
#
# shellcheck shell=bash

set -euo pipefail

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache_dir=${NEREUS_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/nereus-delay}
# Of this checkout alone: cargo takes a build of another checkout in the same folder for its own.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$repo_root/target}
release_binary=$CARGO_TARGET_DIR/release/nereus-delay

say() { printf '%s\n' "$*" >&2; }

# log_of LABEL: where the output of a noted command is.
log_of() { printf '%s/logs/%s.log' "$cache_dir" "${1//[^A-Za-z0-9]/-}"; }

# note LABEL COMMAND…: runs the command with its output in a log file, prints a line when it starts and when it ends,
# a heartbeat every 20 s in between, and the end of the log when it fails.
note() {
  local label=$1
  shift
  local log started pid
  log=$(log_of "$label")
  mkdir -p "$cache_dir/logs"
  started=$SECONDS
  say "==> $label"
  "$@" >"$log" 2>&1 &
  pid=$!
  local last=$SECONDS
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    if ((SECONDS - last >= 20)); then
      last=$SECONDS
      say "    $label: $((SECONDS - started)) s: $(tail -n 1 "$log" | cut -c 1-100)"
    fi
  done
  if ! wait "$pid"; then
    say "==> $label failed after $((SECONDS - started)) s; the end of $log:"
    tail -n 60 "$log" >&2
    return 1
  fi
  say "    $label: done in $((SECONDS - started)) s"
}

ensure_packages() {
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  command -v make >/dev/null || missing+=(make)
  command -v curl >/dev/null || missing+=(curl)
  command -v python3 >/dev/null || missing+=(python3)
  # librdkafka: built by cmake, with OpenSSL for TLS and SCRAM, zlib for gzip, and the headers of curl.
  command -v cmake >/dev/null || missing+=(cmake)
  has_header openssl/ssl.h || missing+=(libssl-dev)
  has_header zlib.h || missing+=(zlib1g-dev)
  has_header curl/curl.h || missing+=(libcurl4-openssl-dev)
  # bindgen loads libclang, and clang compiles RocksDB in about half the time of g++ 12.
  clang_cxx || missing+=("$(newest_clang_package)")
  install_packages "${missing[@]}"
  clang_cxx || {
    say "no clang++ found, although its package is installed"
    return 1
  }
  command -v cargo >/dev/null || {
    say "cargo is missing: install Rust 1.95 or newer (https://rustup.rs) and run this again"
    return 1
  }
}

# has_header NAME: where the C compiler looks by itself.
has_header() { echo "#include <$1>" | cc -E -xc -o /dev/null - 2>/dev/null; }

# install_packages NAME…: Debian's packages; nothing to do without a name.
install_packages() {
  if (($# == 0)); then return 0; fi
  command -v apt-get >/dev/null || {
    say "missing: $*; install them with your package manager and run this again"
    return 1
  }
  local sudo=()
  ((EUID == 0)) || sudo=(sudo)
  note "install $*" env DEBIAN_FRONTEND=noninteractive \
    "${sudo[@]}" bash -c 'apt-get update -q && apt-get install -q -y --no-install-recommends "$@"' _ "$@"
}

newest_clang_package() {
  if [[ -n $(apt-cache madison clang-19 2>/dev/null || true) ]]; then echo clang-19; else echo clang; fi
}

# Finds the newest clang++ and sets clang_cxx_path.
clang_cxx() {
  local candidate
  for candidate in clang++-22 clang++-21 clang++-20 clang++-19 clang++-18 clang++; do
    if clang_cxx_path=$(command -v "$candidate"); then return 0; fi
  done
  return 1
}

# Exports the two variables that make librocksdb-sys link the cached archive, building the archive when it is missing.
ensure_rocksdb() {
  local archive_dir
  archive_dir=$("$repo_root/dev/lib/rocksdb" "$clang_cxx_path" "$cache_dir")
  export ROCKSDB_LIB_DIR=$archive_dir
  export ROCKSDB_STATIC=1
}

# Everything a cargo call needs.
prepare() {
  ensure_packages
  (cd "$repo_root" && cargo fetch --locked --quiet)
  ensure_rocksdb
}

# build_program PACKAGE PROGRAM
build_program() {
  note "build $2 (release)" cargo build --locked --release --manifest-path "$repo_root/Cargo.toml" -p "$1" --bin "$2"
}
