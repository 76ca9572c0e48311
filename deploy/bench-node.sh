#!/usr/bin/env bash
# Measures what one Partita node takes and how it lasts: memory, disk, idle cost, start-up, replay after
# kill -9, and whether rows/s falls as the table grows. One fresh server in a scratch folder; everything
# that was started is stopped, and the folder removed, when it ends, however it ends.
#
#   deploy/bench-node.sh --rows 10000000 --out bench-node
#
# PARTITA_BIN  the server under test, and the driver (target/release/partita)
set -euo pipefail
cd "$(dirname "$0")/.."

rows=10000000
hosts=100
connections=4
log_bytes=400000000
out=bench-node

usage() {
  cat <<END
usage: deploy/bench-node.sh [options]
  --rows N         rows of the load ($rows)
  --hosts N        hosts that they are of ($hosts)
  --connections N  connections of the load ($connections)
  --log-bytes N    bytes of log on disk at which the server is killed ($log_bytes)
  --out PATH       results: PATH.json (figures) and PATH.jsonl (the load as it went) ($out)
END
}

while [ $# -gt 0 ]; do
  case "$1" in
    --rows) rows=$2; shift ;;
    --hosts) hosts=$2; shift ;;
    --connections) connections=$2; shift ;;
    --log-bytes) log_bytes=$2; shift ;;
    --out) out=$2; shift ;;
    --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

partita=${PARTITA_BIN:-target/release/partita}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/partita-node.XXXXXX")
http=127.0.0.1:14100
postgres=14103
pid=

say() { printf '%s\n' "$*" >&2; }
sql() { psql -qAtX -h 127.0.0.1 -p "$postgres" -U partita -d public -c "$1"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
# Clock ticks of CPU since the server began: user and system.
cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
memory_kib() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$pid/status"; }
log_bytes_now() { du -sb "$scratch/data/log" | cut -f1; }

# Starts the server; prints the milliseconds until it answers a query.
start() {
  local began
  began=$(now_ms)
  "$partita" standalone --data-dir "$scratch/data" --http "$http" --postgres "127.0.0.1:$postgres" \
    >>"$scratch/log" 2>&1 &
  pid=$!
  until sql 'SELECT 1' >/dev/null 2>&1; do
    if ! kill -0 "$pid" 2>/dev/null; then
      say "the server did not start:"
      tail -20 "$scratch/log" >&2
      exit 1
    fi
    sleep 0.02
  done
  started_ms=$(($(now_ms) - began))
}

stop() {
  [ -n "$pid" ] || return 0
  kill "-${1:-TERM}" "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  pid=
}

cleanup() {
  stop KILL
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# Prints CPU (per cent of a core) and resident memory (KiB) over ten quiet seconds.
idle() {
  local before
  before=$(cpu_ticks)
  sleep 10
  idle_percent=$(awk -v t="$(($(cpu_ticks) - before))" -v hz="$(getconf CLK_TCK)" 'BEGIN { print t / hz * 10 }')
  idle_kib=$(memory_kib VmRSS)
}

load() {
  "$partita" lab ingest --server partita --url "http://$http" --db public --hosts "$hosts" \
    --rows "$1" --connections "$connections" --server-pid "$pid" --data-dir "$scratch/data" \
    --prepare-mb 512 --json "${@:2}"
}

say "an empty server, idle"
start
empty_start_ms=$started_ms
sleep 5
idle
empty_idle_percent=$idle_percent empty_idle_kib=$idle_kib

say "a load of $rows rows"
load "$rows" --report-every $((rows / 50)) --settle 10s >"$out.jsonl"
load_peak_kib=$(memory_kib VmHWM)

say "flushed and compacted"
sql "ADMIN flush_table('cpu')" >/dev/null
sql "ADMIN compact_table('cpu')" >/dev/null
file_bytes=$(sql "SELECT bytes FROM sys.tables WHERE "table" = 'cpu'")
stored=$(sql 'SELECT count(*) FROM cpu')
sleep 5
idle

say "stopped and started again"
stop TERM
start
full_start_ms=$started_ms

say "killed in the middle of a load"
before=$(sql 'SELECT count(*) FROM cpu')
# The same hosts and times again: newer versions of rows that are there.
load "$rows" --no-create >/dev/null 2>&1 &
loading=$!
until [ "$(log_bytes_now)" -ge "$log_bytes" ] || ! kill -0 "$loading" 2>/dev/null; do sleep 0.2; done
killed_log_bytes=$(log_bytes_now)
stop KILL
wait "$loading" 2>/dev/null || true
start
replay_ms=$started_ms
after=$(sql 'SELECT count(*) FROM cpu')
[ "$before" = "$after" ] || say "LOST: $before rows before, $after after"

cat >"$out.json" <<END
{
  "rows": $stored,
  "empty": {"start_ms": $empty_start_ms, "idle_cpu_percent": $empty_idle_percent, "resident_kib": $empty_idle_kib},
  "load": {"peak_resident_kib": $load_peak_kib, "file_bytes": $file_bytes},
  "full": {"start_ms": $full_start_ms, "idle_cpu_percent": $idle_percent, "resident_kib": $idle_kib},
  "killed": {"log_bytes": $killed_log_bytes, "start_ms": $replay_ms}
}
END
cat "$out.json"
awk -v bytes="$file_bytes" -v rows="$stored" 'BEGIN { printf "%.2f bytes a row on disk\n", bytes / rows }' >&2
