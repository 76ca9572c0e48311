#!/bin/sh
# Runs in the container `certs` of deploy/docker-compose.yml, as root and without a network: makes the certificate
# authority of the cluster and the certificate of each process, and the first password of the superuser, once. It issues
# certificates anew that are older than 180 days, and those of the frontends when PARTITA_HOSTS has changed. Each process
# gets a volume with its own files only; the authority's key stays in the volume `ca`.
#
#   docker-compose -f deploy/docker-compose.yml up -d                      # the first time, by itself
#   docker-compose -f deploy/docker-compose.yml run --rm certs             # at least every 180 days
#   docker-compose -f deploy/docker-compose.yml run --rm certs rotate      # the next of the three steps of a rotation
#   docker-compose -f deploy/docker-compose.yml run --rm -T certs password <FILE   # after ALTER ROLE partita PASSWORD
#
# PARTITA_HOSTS  more names and addresses by which clients call the frontends, separated by commas
set -eu

step=${1:-make}
owner=4000 # the user partita of the image
ca=/ca
# Until every process has loaded new files: they look every 5 seconds.
load_s=15
changed=

fail() {
  echo "$*" >&2
  exit 1
}

# Writes a file whole or not at all.
put() {
  from=$1 to=$2 mode=$3
  cmp -s "$from" "$to" || changed=yes
  install -o "$owner" -g "$owner" -m "$mode" "$from" "$to.new"
  mv "$to.new" "$to"
}

member() {
  role=$1 name=$2 hosts=$3
  # Anew after half of its validity, and for other names.
  if [ ! -e "$ca/$name/REQUEST" ] || [ -n "$(find "$ca/$name/cert.pem" -mtime +180)" ] ||
    [ "$(sed -n 's/^host //p' "$ca/$name/REQUEST")" != "$(printf '%s' "$hosts" | tr , '\n')" ]; then
    partita certs --dir "$ca" issue "$role" "$name" ${hosts:+--host "$hosts"}
  fi
  chown "$owner:$owner" "/certs/$name"
  chmod 0700 "/certs/$name"
  # The key before the certificate: a process that reads a pair which does not match tries again.
  put "$ca/$name/ca.pem" "/certs/$name/ca.pem" 0644
  put "$ca/$name/key.pem" "/certs/$name/key.pem" 0600
  put "$ca/$name/cert.pem" "/certs/$name/cert.pem" 0644
}

members() {
  for number in 1 2 3; do
    member meta "meta$number" ""
    member datanode "datanode$number" ""
  done
  for number in 1 2; do
    member frontend "frontend$number" "localhost,127.0.0.1,frontend$number${PARTITA_HOSTS:+,$PARTITA_HOSTS}"
  done
  # Prometheus verifies the frontends, and has no certificate.
  install -m 0644 "$ca/ca.pem" /certs/prometheus/ca.pem
}

wait_until_loaded() {
  echo "waiting $load_s s until all processes have loaded them"
  sleep "$load_s"
}

# The password: given, of the secret, or made.
password() {
  umask 077
  if [ "$step" = password ]; then
    cat >"$ca/password.new"
    [ -s "$ca/password.new" ] || fail "there is no password on standard input"
  elif [ -e "$ca/password" ]; then
    return 0
  elif [ -s /run/secrets/password ]; then
    cat /run/secrets/password >"$ca/password.new"
  else
    od -An -N15 -tx1 /dev/urandom | tr -d ' \n' >"$ca/password.new"
    echo "made a password for the superuser: see README.md"
  fi
  mv "$ca/password.new" "$ca/password"
}

case "$step" in
  make | rotate | password) ;;
  *) fail "there is no step $step" ;;
esac
[ -e "$ca/ca.pem" ] || partita certs --dir "$ca" init
members
if [ "$step" = rotate ]; then
  # What a step left undone that was interrupted comes before the next one.
  [ -z "$changed" ] || wait_until_loaded
  taken=$(partita certs --dir "$ca" rotate)
  members
  # The rest says that the files are to be copied.
  echo "${taken%%; copy*}"
  wait_until_loaded
fi
password
for number in 1 2; do
  put "$ca/password" "/certs/frontend$number/password" 0600
done
