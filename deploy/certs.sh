#!/bin/sh
# Runs in the container `certs` of deploy/docker-compose.yml, as root and without a network: makes the certificate
# authority of the cluster and the certificate of each process, and the first password of the superuser, once; it issues
# certificates older than 180 days anew. Each process gets a volume with its own files only; the authority's key stays in
# the volume `ca`.
#
#   docker-compose -f deploy/docker-compose.yml up -d                   # the first time, by itself
#   docker-compose -f deploy/docker-compose.yml run --rm certs          # at least every 180 days
#   docker-compose -f deploy/docker-compose.yml run --rm certs rotate   # the next of the three steps of a rotation
#
# PARTITA_HOSTS  more names and addresses by which clients call the frontends, separated by commas
set -eu

step=${1:-make}
owner=4000 # the user partita of the image
ca=/ca

member() {
  role=$1 name=$2 hosts=$3
  # Anew after half of its validity.
  if [ ! -e "$ca/$name/REQUEST" ] || [ -n "$(find "$ca/$name/cert.pem" -mtime +180)" ]; then
    partita certs --dir "$ca" issue "$role" "$name" ${hosts:+--host "$hosts"}
  fi
  chown "$owner:$owner" "/certs/$name"
  chmod 0700 "/certs/$name"
  # The key first: a process that reads a pair which does not match tries again.
  for file in ca.pem key.pem cert.pem; do
    mode=0644
    [ "$file" = key.pem ] && mode=0600
    install -o "$owner" -g "$owner" -m "$mode" "$ca/$name/$file" "/certs/$name/$file.new"
    mv "/certs/$name/$file.new" "/certs/$name/$file"
  done
}

[ -e "$ca/ca.pem" ] || partita certs --dir "$ca" init
[ "$step" != rotate ] || partita certs --dir "$ca" rotate
for number in 1 2 3; do
  member meta "meta$number" ""
  member datanode "datanode$number" ""
done
for number in 1 2; do
  member frontend "frontend$number" "localhost,127.0.0.1,frontend$number${PARTITA_HOSTS:+,$PARTITA_HOSTS}"
done

# Prometheus verifies the frontends, and has no certificate.
install -m 0644 "$ca/ca.pem" /certs/prometheus/ca.pem

# The password: of the secret, or made.
if [ ! -e "$ca/password" ]; then
  umask 077
  if [ -s /run/secrets/password ]; then
    cat /run/secrets/password >"$ca/password"
  else
    od -An -N15 -tx1 /dev/urandom | tr -d ' \n' >"$ca/password"
    echo "made a password for the superuser: see README.md"
  fi
fi
for number in 1 2; do
  install -o "$owner" -g "$owner" -m 0600 "$ca/password" "/certs/frontend$number/password"
done
