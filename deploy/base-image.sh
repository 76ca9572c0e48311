#!/usr/bin/env bash
# Sees to it that Docker has the image debian:bookworm-slim, also where no registry can be reached: then it is
# made of Debian's own packages by debootstrap, under the same tag, so that the same Dockerfile works. The
# archive is kept, so that the next time takes seconds.
#
#   deploy/base-image.sh
#
# PARTITA_DEBIAN_MIRROR  where packages come from (http://deb.debian.org/debian)
# PARTITA_CACHE          where the archive is kept (~/.cache/partita)
# PARTITA_OFFLINE        if not empty: do not ask the registry
set -euo pipefail

image=debian:bookworm-slim
suite=bookworm
mirror=${PARTITA_DEBIAN_MIRROR:-http://deb.debian.org/debian}
cache=${PARTITA_CACHE:-$HOME/.cache/partita}
archive=$cache/debian-bookworm-slim.tar

say() { printf 'base image: %s\n' "$*" >&2; }

if docker image inspect "$image" >/dev/null 2>&1; then
  say "$image is there"
  exit 0
fi
if [ -z "${PARTITA_OFFLINE:-}" ] && timeout 300 docker pull --quiet "$image" >/dev/null 2>&1; then
  say "$image came from the registry"
  exit 0
fi

sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)

# What Debian's own slim images leave out too: nobody reads manuals in a container.
trim() {
  local root=$1
  "${sudo[@]}" find "$root/usr/share/doc" -mindepth 1 -type f ! -name copyright -delete
  "${sudo[@]}" find "$root/usr/share/doc" -mindepth 1 -type l -delete
  "${sudo[@]}" rm -rf "$root"/usr/share/{man,info,groff,lintian,linda,locale} "$root"/var/lib/apt/lists/* \
    "$root"/var/cache/apt/* "$root"/var/log/*.log "$root"/var/log/apt "$root"/var/cache/ldconfig
  "${sudo[@]}" install -d "$root/var/lib/apt/lists/partial" "$root/var/cache/apt/archives/partial"
  # One machine's identity and addresses are nothing for an image.
  "${sudo[@]}" truncate -s 0 "$root/etc/machine-id" "$root/etc/resolv.conf" "$root/etc/hostname"
}

make_archive() {
  if ! command -v debootstrap >/dev/null 2>&1 && [ ! -x /usr/sbin/debootstrap ]; then
    say "installing debootstrap"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
  fi
  local scratch
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/partita-base.XXXXXX")
  # shellcheck disable=SC2064  # the folder's name of now
  # debootstrap mounts /proc inside while it works; nothing below a mount that was left is removed.
  trap "${sudo[*]} umount '$scratch/tree/proc' 2>/dev/null || true; ${sudo[*]} rm -rf --one-file-system '$scratch'" EXIT
  say "making it of the packages of $mirror; this takes a few minutes"
  if ! PATH=$PATH:/usr/sbin "${sudo[@]}" debootstrap --variant=minbase "$suite" "$scratch/tree" "$mirror" >"$scratch/log" 2>&1; then
    tail -n 20 "$scratch/log" >&2
    say "debootstrap failed"
    exit 1
  fi
  trim "$scratch/tree"
  mkdir -p "$cache"
  "${sudo[@]}" tar -C "$scratch/tree" --one-file-system --numeric-owner --sort=name -c . >"$archive.new"
  mv "$archive.new" "$archive"
}

[ -s "$archive" ] || make_archive
docker import --change 'CMD ["bash"]' --change 'LABEL org.partita.base=debootstrap' "$archive" "$image" >/dev/null
say "$image was made of Debian's packages ($(du -m "$archive" | cut -f1) MiB)"
