#!/usr/bin/env bash
# Measures Partita beside what people would pick instead, on this machine, with one driver: `partita lab`.
#
# Installs the peers from Debian's packages (InfluxDB 1.6, VictoriaMetrics 1.79, ClickHouse 18.16,
# PostgreSQL 15), runs one server at a time in a scratch folder of its own with its default settings,
# never as a service, loads the TSBS cpu-only data set into it and asks the 15 TSBS queries. Rounds
# alternate: one goes through the servers forwards, the next backwards. Prints medians and ratios; keeps
# each result as a line of JSON. Everything that was started is stopped, and the scratch folder removed,
# when it ends, however it ends.
#
#   deploy/bench-peers.sh --rounds 5 --set A --what ingest --connections 1,4
#
# PARTITA_BIN  the server under test (target/release/partita)
# PARTITA_LAB  the driver ("$PARTITA_BIN lab"); the example `lab` is the same driver without a server
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=5
servers=partita,influxdb,victoria-metrics,clickhouse,postgresql
set_name=A
what=all
connections=1,4
doors=line-protocol,copy-text,copy-binary,flight
settle=5s
runs=10
insert_duration=10s
while_ingesting=
out=bench-peers
install=yes

usage() {
  cat <<END
usage: deploy/bench-peers.sh [options]
  --rounds N              rounds ($rounds)
  --peers LIST            servers, with commas ($servers)
  --set A|B|C             A: 100 hosts x 24 h, B: 1000 hosts x 3 h, C: 100000 hosts x 10 min ($set_name)
  --what LIST             ingest, query, insert or all ($what)
  --connections LIST      connections of loads ($connections)
  --doors LIST            Partita's doors for loads ($doors)
  --runs N                runs of each query in a round ($runs)
  --while-ingesting N     ask all queries again while N rows a second come in
  --settle SPAN           wait after a load before the server is measured again ($settle)
  --insert-duration SPAN  of single-row inserts through 64 connections ($insert_duration)
  --out PATH              results: PATH.jsonl and PATH.json ($out)
  --no-install            the peers are there already
END
}

while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2; shift ;;
    --peers) servers=$2; shift ;;
    --set) set_name=$2; shift ;;
    --what) what=$2; shift ;;
    --connections) connections=$2; shift ;;
    --doors) doors=$2; shift ;;
    --runs) runs=$2; shift ;;
    --while-ingesting) while_ingesting=$2; shift ;;
    --settle) settle=$2; shift ;;
    --insert-duration) insert_duration=$2; shift ;;
    --out) out=$2; shift ;;
    --no-install) install=no ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

case "$set_name" in
  A) data=(--hosts 100 --span 24h) ;;
  B) data=(--hosts 1000 --span 3h) ;;
  C) data=(--hosts 100000 --span 10m) ;;
  *) echo "no data set $set_name" >&2; exit 2 ;;
esac
[ "$what" != all ] || what=ingest,query,insert
partita=${PARTITA_BIN:-target/release/partita}
# shellcheck disable=SC2206 # a command with its arguments
lab=(${PARTITA_LAB:-$partita lab})

say() { printf '%s\n' "$*" >&2; }
has() { case ",$1," in *",$2,"*) true ;; *) false ;; esac; }
each() { tr ',' '\n' <<<"$1"; }

# What the peers are called in Debian.
install_peers() {
  local packages=() name
  has "$servers" influxdb && ! command -v influxd >/dev/null && packages+=(influxdb)
  has "$servers" victoria-metrics && ! command -v victoria-metrics >/dev/null && packages+=(victoria-metrics)
  has "$servers" clickhouse && ! command -v clickhouse-server >/dev/null && packages+=(clickhouse-server)
  has "$servers" postgresql && ! [ -x "$postgres_bin/postgres" ] && packages+=(postgresql-15)
  [ "${#packages[@]}" -gt 0 ] || return 0
  say "installing ${packages[*]}"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -qq
  # No package starts its service, and PostgreSQL makes no cluster: they are run by hand below.
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

postgres_bin=/usr/lib/postgresql/15/bin
scratch=$(mktemp -d "${TMPDIR:-/tmp}/partita-bench.XXXXXX")
chmod 755 "$scratch"
pid=
started=

stop() {
  if [ -n "$started" ]; then
    kill "$pid" 2>/dev/null || true
    # runuser and the server both: the one that was started here is the one to wait for.
    wait "$started" 2>/dev/null || true
  fi
  pid='' started=''
  rm -rf "$scratch/data"
}

cleanup() {
  stop
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

wait_for_port() {
  local _
  for _ in $(seq 300); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
    if ! kill -0 "$started" 2>/dev/null; then break; fi
    sleep 0.1
  done
  say "the server did not start:"
  tail -20 "$scratch/log" >&2
  exit 1
}

# Each start sets: target (the driver's arguments), pid, and tree when it is several processes.
start_partita() {
  "$partita" standalone --data-dir "$scratch/data" --http 127.0.0.1:14000 --postgres 127.0.0.1:14003 \
    >"$scratch/log" 2>&1 &
  started=$! pid=$!
  wait_for_port 14000
  wait_for_port 14003
  target=(--server partita --url http://127.0.0.1:14000 --db public
    --pg 'host=127.0.0.1 port=14003 user=partita')
}

start_influxdb() {
  cat >"$scratch/influxdb.conf" <<END
reporting-disabled = true
bind-address = "127.0.0.1:18088"
[meta]
  dir = "$scratch/data/meta"
[data]
  dir = "$scratch/data/data"
  wal-dir = "$scratch/data/wal"
  query-log-enabled = false
  max-values-per-tag = 0
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:18086"
  log-enabled = false
END
  influxd run -config "$scratch/influxdb.conf" >"$scratch/log" 2>&1 &
  started=$! pid=$!
  wait_for_port 18086
  target=(--server influxdb --url http://127.0.0.1:18086 --db tsbs)
}

start_victoria-metrics() {
  # The data is from 2016: older than what it keeps by default.
  victoria-metrics -storageDataPath "$scratch/data" -httpListenAddr 127.0.0.1:18428 \
    -retentionPeriod 100y >"$scratch/log" 2>&1 &
  started=$! pid=$!
  wait_for_port 18428
  target=(--server victoria-metrics --url http://127.0.0.1:18428 --db tsbs)
}

start_clickhouse() {
  mkdir -p "$scratch/data/tmp"
  cat >"$scratch/users.xml" <<END
<yandex>
  <profiles><default></default></profiles>
  <quotas><default></default></quotas>
  <users><default>
    <password></password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota>
  </default></users>
</yandex>
END
  cat >"$scratch/clickhouse.xml" <<END
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>18123</http_port>
  <tcp_port>19000</tcp_port>
  <path>$scratch/data/</path>
  <tmp_path>$scratch/data/tmp/</tmp_path>
  <users_config>$scratch/users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <timezone>UTC</timezone>
  <mark_cache_size>5368709120</mark_cache_size>
</yandex>
END
  clickhouse-server --config-file="$scratch/clickhouse.xml" >"$scratch/log" 2>&1 &
  started=$! pid=$!
  wait_for_port 18123
  target=(--server clickhouse --url http://127.0.0.1:18123 --db default)
}

start_postgresql() {
  mkdir -p "$scratch/data"
  # It refuses to run as root.
  local as=()
  if [ "$(id -u)" -eq 0 ]; then
    chown postgres "$scratch/data"
    as=(runuser -u postgres --)
  fi
  "${as[@]}" "$postgres_bin/initdb" -D "$scratch/data/db" -U postgres -A trust -E UTF8 \
    --locale=C.UTF-8 >"$scratch/log" 2>&1
  "${as[@]}" "$postgres_bin/postgres" -D "$scratch/data/db" -p 15432 -k "$scratch/data" \
    -c listen_addresses=127.0.0.1 -c timezone=UTC -c max_connections=200 >>"$scratch/log" 2>&1 &
  started=$!
  wait_for_port 15432
  until "$postgres_bin/pg_isready" -q -h 127.0.0.1 -p 15432; do
    kill -0 "$started"
    sleep 0.1
  done
  pid=$(head -1 "$scratch/data/db/postmaster.pid")
  tree=(--server-pid-tree)
  target=(--server postgresql --db postgres --pg 'host=127.0.0.1 port=15432 user=postgres')
}

doors_of() {
  case "$1" in
    partita) each "$doors" ;;
    postgresql) printf '%s\n' copy-text copy-binary ;;
    clickhouse) echo tab-separated ;;
    *) echo line-protocol ;;
  esac
}

# A fresh server for each measurement; a failure is told and the rest goes on.
with_server() {
  local server=$1
  shift
  tree=() target=()
  "start_$server"
  "$@" || say "FAILED: $server: $*"
  stop
}

metered() { "${lab[@]}" "$@" "${target[@]}" "${data[@]}" --server-pid "$pid" "${tree[@]}" --json; }

load() {
  metered ingest --door "$1" --connections "$2" --label "$set_name" --settle "$settle" \
    --data-dir "$scratch/data" >>"$out.jsonl"
}

insert() {
  metered ingest --door insert --connections 64 --duration "$insert_duration" \
    --label "$set_name single rows" --data-dir "$scratch/data" >>"$out.jsonl"
}

ask() {
  local server=$1 door beside=()
  # In the same run: plain DataFusion over the same rows, for Partita only, and rows that come in meanwhile.
  if [ "$server" = partita ]; then
    "${lab[@]}" query --help | grep -q -- --yardstick && beside+=(--yardstick "$scratch/yardstick.parquet")
  fi
  [ -z "$while_ingesting" ] || beside+=(--while-ingesting "$while_ingesting")
  door=$(doors_of "$server" | head -1)
  # The load is not measured here: it only has to be there.
  "${lab[@]}" ingest "${target[@]}" "${data[@]}" --door "$door" --connections 4 --json >/dev/null \
    || return 1
  case "$server" in
    postgresql) psql -q -h 127.0.0.1 -p 15432 -U postgres -c 'VACUUM ANALYZE cpu' || return 1 ;;
    # Rows become visible to queries when they are flushed.
    victoria-metrics) sleep 2 ;;
  esac
  sleep "${settle%s}"
  metered query --runs "$runs" --warmup 2 --label "$set_name" "${beside[@]}" >>"$out.jsonl"
}

[ "$install" = no ] || install_peers
if has "$servers" partita && ! [ -x "$partita" ]; then
  say "there is no $partita: build it, or name it with PARTITA_BIN; going on without it"
  servers=$(each "$servers" | grep -vx partita | paste -sd,)
fi
: >"$out.jsonl"
for round in $(seq "$rounds"); do
  order=$(each "$servers")
  [ $((round % 2)) -eq 1 ] || order=$(tac <<<"$order")
  for server in $order; do
    say "round $round of $rounds: $server"
    if has "$what" ingest; then
      for count in $(each "$connections"); do
        for door in $(doors_of "$server"); do
          with_server "$server" load "$door" "$count"
        done
      done
    fi
    if has "$what" insert && { [ "$server" = partita ] || [ "$server" = postgresql ]; }; then
      with_server "$server" insert
    fi
    if has "$what" query; then
      with_server "$server" ask "$server"
    fi
  done
done
"${lab[@]}" compare "$out.jsonl" --out "$out.json"
