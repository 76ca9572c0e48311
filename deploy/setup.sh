#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu machine lacks to build Partita and run its tests: a C compiler
# (some crates compile C), psql and Python's venv (real clients are tried). Rust comes from rustup.
# Says what to do by hand where it may not install.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
need make make
need psql postgresql-client
need python3 python3
need unshare util-linux
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ]; then
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "please install: ${missing[*]}" >&2
    exit 1
  fi
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" apt-get install -y -qq "${missing[@]}"
fi
if ! command -v cargo >/dev/null 2>&1; then
  echo "please install Rust 1.95 or later with rustup" >&2
  exit 1
fi
