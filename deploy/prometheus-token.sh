#!/bin/sh
# Runs in the container `prometheus-token` of deploy/docker-compose.yml, as root, when a frontend serves: gives Prometheus
# a token to read /metrics with. Its owner, the role `prometheus`, may do nothing else (MONITOR). A token that still works
# stays; another one is made otherwise.
#
#   docker-compose -f deploy/docker-compose.yml --profile monitoring up -d      # by itself
#
# PARTITA_PASSWORD_FILE, PARTITA_TLS_CA  the superuser's password, and the authority of the frontends
set -eu

server=frontend1:4003
token=/prometheus/token
owner=65534 # the user nobody of Prometheus's image

sql() { partita sql --server "$server" --plain -c "$1"; }

# At a PostgreSQL port the user of a token is its id.
id=$(cat "$token.id" 2>/dev/null || true)
if [ -n "$id" ]; then
  if PARTITA_USER="$id" PARTITA_PASSWORD_FILE="$token" sql "SELECT 1" >/dev/null 2>&1; then
    exit 0
  fi
  sql "DROP TOKEN IF EXISTS '$id'"
fi
if [ -z "$(sql "SELECT role FROM sys.roles WHERE role = 'prometheus'")" ]; then
  sql "CREATE USER prometheus"
fi
sql "GRANT MONITOR ON CLUSTER TO prometheus"
# One row: the id, and the token, which is shown only once.
made=$(sql "CREATE TOKEN 'metrics for Prometheus' WITH (ALL, OWNER prometheus)")
umask 077
printf '%s\n' "$made" | cut -f 1 >"$token.id"
printf '%s\n' "$made" | cut -f 2 | tr -d '\n' >"$token.new"
[ -s "$token.new" ] || { echo "no token was made" >&2; exit 1; }
chown "$owner:$owner" "$token.new"
mv "$token.new" "$token"
echo "made a token for Prometheus"
