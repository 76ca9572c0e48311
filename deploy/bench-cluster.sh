#!/usr/bin/env bash
# Measures a cluster of three meta, three datanodes and a frontend as processes on this machine:
#   writes    small replicated writes beside etcd's, three members each, in turns
#   ingest    bulk load with three replicas beside one, in turns
#   start     a table of many partitions with three replicas: made, and back after everything was killed
#   failover  how long writes and reads stand after kill -9 (or SIGSTOP) of the datanode that leads their partition
#   splits    for how long writes wait when a partition is cut while many clients write
#   idle      the CPU that many groups with three replicas use in which nothing happens
# One scratch folder; everything that was started is stopped, and the folder removed, when it ends.
#
#   deploy/bench-cluster.sh --what writes,ingest --rounds 5 --out cluster.jsonl
#
# PARTITA_BIN  the server under test, and the driver (target/release/partita)
set -euo pipefail
cd "$(dirname "$0")/.."

what=writes,ingest,start,failover,splits,idle
rounds=3
seconds=10
clients="1 32 256"
partitions="1 8"
many=1000
groups=500
kills=20
signals="KILL STOP"
cuts=100
out=/dev/stdout

usage() {
  cat <<END
usage: deploy/bench-cluster.sh [options]
  --what LIST        of writes, ingest, start, failover, splits, idle ($what)
  --rounds N         rounds of writes and ingest ($rounds)
  --seconds N        seconds of one measurement of writes ($seconds)
  --clients LIST     clients of writes ($clients)
  --partitions LIST  partitions of the table that is written to ($partitions)
  --many N           partitions of start ($many)
  --groups N         groups of idle ($groups)
  --kills N          kills of failover, by each signal ($kills)
  --signals LIST     signals of failover, KILL or STOP ($signals)
  --cuts N           cuts of splits ($cuts)
  --out FILE         results, a line of JSON each ($out)
END
}

while [ $# -gt 0 ]; do
  case "$1" in
    --what) what=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --clients) clients=$2; shift ;;
    --partitions) partitions=$2; shift ;;
    --many) many=$2; shift ;;
    --groups) groups=$2; shift ;;
    --kills) kills=$2; shift ;;
    --signals) signals=$2; shift ;;
    --cuts) cuts=$2; shift ;;
    --out) out=$2; shift ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

partita=${PARTITA_BIN:-target/release/partita}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/partita-cluster.XXXXXX")
metas=127.0.0.1:14201,127.0.0.1:14202,127.0.0.1:14203
peers=1=127.0.0.1:14201,2=127.0.0.1:14202,3=127.0.0.1:14203
postgres=14233
http=http://127.0.0.1:14230
declare -A pids=()

say() { printf '%s\n' "$*" >&2; }
sql() { psql -qAtX -h 127.0.0.1 -p "$postgres" -U partita -d public -c "$1"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
wants() { case ",$what," in *",$1,"*) true ;; *) false ;; esac; }

launch() {
  local name=$1
  shift
  "$@" >>"$scratch/$name.log" 2>&1 &
  pids[$name]=$!
}

start_node() {
  launch "datanode$1" "$partita" datanode --data-dir "$scratch/datanode$1" --meta "$metas" --listen "127.0.0.1:1421$1"
}

start_partita() {
  for n in 1 2 3; do
    launch "meta$n" "$partita" meta --data-dir "$scratch/meta$n" --node "$n" --peers "$peers" --listen "127.0.0.1:1420$n"
    start_node "$n"
  done
  launch frontend "$partita" frontend --meta "$metas" --http 127.0.0.1:14230 --postgres "127.0.0.1:$postgres" \
    --spill-dir "$scratch/spill"
  wait_for_nodes
}

wait_for_nodes() {
  for _ in $(seq 600); do
    [ "$(sql 'SELECT count(*) FROM sys.nodes WHERE live' 2>/dev/null || true)" = 3 ] && return 0
    sleep 0.1
  done
  say "the cluster did not come up; see:"
  tail -n 5 "$scratch"/*.log >&2
  exit 1
}

start_etcd() {
  local all=e1=http://127.0.0.1:14251,e2=http://127.0.0.1:14252,e3=http://127.0.0.1:14253
  for n in 1 2 3; do
    launch "etcd$n" etcd --name "e$n" --data-dir "$scratch/etcd$n" --log-level error \
      --listen-client-urls "http://127.0.0.1:1424$n" --advertise-client-urls "http://127.0.0.1:1424$n" \
      --listen-peer-urls "http://127.0.0.1:1425$n" --initial-advertise-peer-urls "http://127.0.0.1:1425$n" \
      --initial-cluster "$all" --initial-cluster-state new --quota-backend-bytes 8589934592
  done
  for _ in $(seq 100); do
    ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:14241 endpoint health >/dev/null 2>&1 && return 0
    sleep 0.2
  done
  say "etcd did not start"
  exit 1
}

end() { # SIGNAL NAME...
  local signal=$1 name
  shift
  for name in "$@"; do kill "-$signal" "${pids[$name]}" 2>/dev/null || true; done
  for name in "$@"; do
    wait "${pids[$name]}" 2>/dev/null || true
    unset "pids[$name]"
  done
}

cleanup() {
  [ ${#pids[@]} -eq 0 ] || end KILL "${!pids[@]}"
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

partita_names() { echo meta1 meta2 meta3 datanode1 datanode2 datanode3 frontend; }

# One server at a time has the machine: the other one stands still.
pause() { for name in "$@"; do kill -STOP "${pids[$name]}"; done; }
go_on() { for name in "$@"; do kill -CONT "${pids[$name]}"; done; sleep 3; }

writes() {
  if ! command -v etcd >/dev/null || ! command -v etcdctl >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends etcd-server etcd-client >/dev/null
  fi
  start_etcd
  local etcds="etcd1 etcd2 etcd3" n p round
  for round in $(seq "$rounds"); do
    for n in $clients; do
      # shellcheck disable=SC2046,SC2086
      { pause $etcds; wait_for_nodes; }
      for p in $partitions; do
        "$partita" lab writes --postgres "host=127.0.0.1 port=$postgres user=partita" --clients "$n" \
          --seconds "$seconds" --partitions "$p" --json | tee -a "$out" >&2
      done
      # shellcheck disable=SC2046,SC2086
      { pause $(partita_names); go_on $etcds; }
      "$partita" lab writes --etcd 127.0.0.1:14241 --etcd 127.0.0.1:14242 --etcd 127.0.0.1:14243 --clients "$n" \
        --seconds "$seconds" --json | tee -a "$out" >&2
      # shellcheck disable=SC2046
      go_on $(partita_names)
    done
    say "round $round of writes done"
  done
  # shellcheck disable=SC2086
  end KILL $etcds
}

ingest() {
  local round factor
  for round in $(seq "$rounds"); do
    for factor in 1 3; do
      "$partita" lab ingest --server partita --url "$http" --pg "host=127.0.0.1 port=$postgres user=partita" --hosts 100 --rows 2000000 --connections 4 --drop --create \
        --table-suffix "PARTITION BY HASH (hostname) PARTITIONS 3 WITH ('replication_factor' = '$factor')" \
        --label "factor $factor" --json | tee -a "$out" >&2
    done
    say "round $round of ingest done"
  done
}

many_partitions() {
  local began made first back
  began=$(now_ms)
  sql "CREATE TABLE many (id BIGINT, v DOUBLE, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS $many"
  made=$(($(now_ms) - began))
  began=$(now_ms)
  sql "INSERT INTO many SELECT n, n FROM generate_series(1, 20000) AS t(n)"
  first=$(($(now_ms) - began))
  # shellcheck disable=SC2046
  end KILL $(partita_names)
  began=$(now_ms)
  start_partita
  until [ "$(sql 'SELECT count(*) FROM many' 2>/dev/null || true)" = 20000 ]; do sleep 0.2; done
  back=$(($(now_ms) - began))
  printf '{"partitions":%s,"create_ms":%s,"first_rows_ms":%s,"restart_ms":%s}\n' "$many" "$made" "$first" "$back" |
    tee -a "$out" >&2
  sql "DROP TABLE many"
}

# Milliseconds that a statement takes.
timed() {
  local began
  began=$(now_ms)
  sql "$1" >/dev/null
  echo $(($(now_ms) - began))
}

# Milliseconds until a write and a read succeed that begin when the leader of their partition was killed, or stopped.
failover() {
  local signal kill leader n row=0 reader
  sql "CREATE TABLE failing (id BIGINT, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 1"
  for signal in $signals; do for kill in $(seq "$kills"); do
    row=$((row + 1))
    sql "INSERT INTO failing VALUES ($row)"
    leader=$(sql "SELECT node FROM sys.partitions WHERE \"table\" = 'failing'")
    # Nodes are numbered in the order in which they registered.
    for n in 1 2 3; do
      if grep -q "^number $leader\$" "$scratch/datanode$n/NODE"; then leader=$n; break; fi
    done
    if [ "$signal" = STOP ]; then kill -STOP "${pids[datanode$leader]}"; else end "$signal" "datanode$leader"; fi
    timed "SELECT count(*) FROM failing WHERE id = $row" >"$scratch/read" &
    reader=$!
    timed "INSERT INTO failing VALUES (-$row)" >"$scratch/written"
    wait "$reader"
    printf '{"signal":"%s","kill":%s,"writes_after_ms":%s,"reads_after_ms":%s}\n' "$signal" "$kill" \
      "$(cat "$scratch/written")" "$(cat "$scratch/read")" | tee -a "$out" >&2
    if [ "$signal" = STOP ]; then kill -CONT "${pids[datanode$leader]}"; else start_node "$leader"; fi
    wait_for_nodes
    # Until the node has caught up, so that each kill meets a whole group.
    until [ "$(sql "SELECT count(*) FROM sys.replicas WHERE \"table\" = 'failing' AND role IN ('leader', 'follower')")" = 3 ]; do
      sleep 0.2
    done
    sleep 1
  done; done
  [ "$(sql 'SELECT count(*) FROM failing')" = $((2 * row)) ] || { say "rows are missing"; exit 1; }
}

# Cuts the partition with the most rows, again and again, while 32 clients write single rows.
splits() {
  local cut largest
  "$partita" lab writes --postgres "host=127.0.0.1 port=$postgres user=partita" --clients 32 \
    --seconds $((cuts * 6 / 10 + 5)) --json >"$scratch/under" &
  pids[writer]=$!
  sleep 4
  for cut in $(seq "$cuts"); do
    largest=$(sql "SELECT partition FROM sys.partitions WHERE \"table\" = 'lab_writes' ORDER BY rows DESC LIMIT 1")
    sql "ALTER TABLE lab_writes SPLIT PARTITION $largest" || say "cut $cut was refused"
    sleep 0.1
  done
  wait "${pids[writer]}"
  unset "pids[writer]"
  sql "SELECT stall_ms FROM sys.split_events WHERE \"table\" = 'lab_writes' AND kind = 'split' AND outcome = 'done'
       ORDER BY stall_ms" | awk -v under="$(cat "$scratch/under")" '
    { stall[NR] = $1 }
    function at(share) { i = int(NR * share + 0.999999); return stall[i < 1 ? 1 : i] }
    END { printf "{\"splits\":%d,\"stall_p50_ms\":%s,\"stall_p99_ms\":%s,\"stall_max_ms\":%s,\"under\":%s}\n",
          NR, at(0.5), at(0.99), stall[NR], under }' | tee -a "$out" >&2
}

# Seconds of CPU, in hundredths, that some processes have used.
used() {
  local name
  for name in "$@"; do awk '{ print $14 + $15 }' "/proc/${pids[$name]}/stat"; done | awk '{ s += $1 } END { print s }'
}

# A table in which nothing happens, once its leaders are spread over the nodes.
idle() {
  local began spread least datanodes metas_used frontend span=20
  began=$(now_ms)
  sql "CREATE TABLE idle (id BIGINT, v DOUBLE, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS $groups"
  for _ in $(seq 240); do
    least=$(sql "SELECT CASE WHEN count(*) < 3 THEN 0 ELSE min(n) END FROM (SELECT node, count(*) AS n FROM sys.replicas
                 WHERE \"table\" = 'idle' AND role = 'leader' GROUP BY node)")
    [ "$least" -ge $((groups / 3 - 2)) ] && break
    sleep 0.5
  done
  spread=$(($(now_ms) - began))
  sleep 10
  datanodes=$(used datanode1 datanode2 datanode3) metas_used=$(used meta1 meta2 meta3) frontend=$(used frontend)
  sleep "$span"
  awk -v groups="$groups" -v spread="$spread" -v least="$least" -v span="$span" \
    -v d="$(($(used datanode1 datanode2 datanode3) - datanodes))" -v m="$(($(used meta1 meta2 meta3) - metas_used))" \
    -v f="$(($(used frontend) - frontend))" 'BEGIN {
      printf "{\"idle_groups\":%d,\"least_leaders_of_a_node\":%d,\"spread_ms\":%d,", groups, least, spread
      printf "\"datanodes_core_percent\":%.2f,\"metas_core_percent\":%.2f,\"frontend_core_percent\":%.2f}\n",
        d / span, m / span, f / span }' | tee -a "$out" >&2
  sql "DROP TABLE idle"
}

start_partita
if wants writes; then writes; fi
if wants ingest; then ingest; fi
if wants failover; then failover; fi
if wants start; then many_partitions; fi
if wants splits; then splits; fi
if wants idle; then idle; fi
