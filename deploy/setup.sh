#!/usr/bin/env bash
# Installs what a fresh Debian or Ubuntu machine lacks to build Partita and run its tests: a C compiler (some crates compile
# C), what real clients are tried with (psql, Python's venv, node-postgres), PostgreSQL's server (answers are compared with
# its answers), and Chromium where the distribution has it as a package of its own (pages of other origins are tried; without
# it they are not). Rust comes from rustup.
# Says what to do by hand where it may not install.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need cc gcc
need make make
need psql postgresql-client
need python3 python3
need unshare util-linux
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ] && ! command -v apt-get >/dev/null 2>&1; then
  echo "please install: ${missing[*]}" >&2
  exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
if [ "${#missing[@]}" -gt 0 ]; then
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" apt-get install -y -qq "${missing[@]}"
fi
browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! browser >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1; then
  "${sudo[@]}" apt-get update -qq
  # Some hundred megabytes, and less than a minute.
  "${sudo[@]}" apt-get install -y -qq --no-install-recommends chromium ||
    echo "there is no package chromium: pages of other origins are not tried" >&2
fi
# A machine whose node is not Debian's cannot have Debian's node-postgres: its tests are skipped then, and say so.
if [ ! -d /usr/share/nodejs/pg ] && command -v apt-get >/dev/null 2>&1; then
  "${sudo[@]}" apt-get install -y -qq --no-install-recommends node-pg ||
    echo "node-pg is not installable here; the tests of node-postgres are skipped" >&2
fi
# JDBC is tried where there is a Java to run it.
if command -v java >/dev/null 2>&1 && [ ! -f /usr/share/java/postgresql.jar ] && command -v apt-get >/dev/null 2>&1; then
  "${sudo[@]}" apt-get install -y -qq --no-install-recommends libpostgresql-jdbc-java ||
    echo "libpostgresql-jdbc-java is not installable here; the tests of JDBC are skipped" >&2
fi
if ! command -v cargo >/dev/null 2>&1; then
  echo "please install Rust 1.95 or later with rustup" >&2
  exit 1
fi
