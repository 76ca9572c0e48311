#!/usr/bin/env bash
# Builds the image partita:latest. By deploy/Dockerfile, where rust's image can be had; else of a binary that is
# built on this machine, on a base that deploy/base-image.sh makes of Debian's packages.
#
#   deploy/image.sh
#   PARTITA_BIN=target/release/partita deploy/image.sh     # of this binary, which is there already
#
# PARTITA_BIN    the binary to put in (none: build one)
# PARTITA_IMAGE  the image's name (partita:latest)
set -euo pipefail
cd "$(dirname "$0")/.."

image=${PARTITA_IMAGE:-partita:latest}
rust=$(sed -n 's/^FROM \(rust:[^ ]*\) .*/\1/p' deploy/Dockerfile)

say() { printf 'image: %s\n' "$*" >&2; }

have_rust() {
  docker image inspect "$rust" >/dev/null 2>&1 || timeout 900 docker pull --quiet "$rust" >/dev/null 2>&1
}

of_binary() {
  local binary=$1 context
  context=$(mktemp -d "${TMPDIR:-/tmp}/partita-image.XXXXXX")
  # shellcheck disable=SC2064  # the folder's name of now
  trap "rm -rf '$context'" EXIT
  # Only what is needed to run it, and symbols for backtraces: debug information is most of a binary.
  strip --strip-debug -o "$context/partita" "$binary" 2>/dev/null || cp "$binary" "$context/partita"
  chmod 0755 "$context/partita"
  docker build --quiet --target runtime -t partita-runtime:latest - <deploy/Dockerfile >/dev/null
  docker build --quiet -f deploy/prebuilt.Dockerfile -t "$image" "$context" >/dev/null
}

if [ -n "${PARTITA_BIN:-}" ]; then
  deploy/base-image.sh
  say "of $PARTITA_BIN"
  of_binary "$PARTITA_BIN"
elif have_rust; then
  say "by deploy/Dockerfile; this compiles everything"
  docker build -f deploy/Dockerfile -t "$image" .
else
  deploy/base-image.sh
  say "$rust cannot be had; building on this machine"
  cargo build --release --locked
  of_binary "${CARGO_TARGET_DIR:-target}/release/partita"
fi
# A binary of a newer system does not find its glibc in Debian 12; that is to show here, not at the first start.
if ! version=$(docker run --rm --network none --entrypoint partita "$image" --version 2>&1); then
  printf '%s\n' "$version" >&2
  say "the binary does not run in the image; build it on Debian 12 or in $rust"
  exit 1
fi
say "$image has $version, $(docker image inspect --format '{{.Size}}' "$image" | awk '{ printf "%d MiB", $1 / 1048576 }')"
