#!/usr/bin/env bash
# Restarts the containers of the cluster one after another while it serves: first the meta nodes, then the
# datanodes, then the frontends. Before a datanode stops, the partitions that it leads are handed to other nodes;
# after each container it waits until that is healthy, every node is heard of, and no replica is absent, failed
# or behind. It stops at the first thing that does not come back, with the rest of the cluster untouched.
#
#   deploy/rolling-restart.sh                        # the same containers again
#   deploy/rolling-restart.sh --recreate             # new containers: a new image or a changed docker-compose.yml
#   deploy/rolling-restart.sh datanode2 frontend1    # these only
#
# COMPOSE_PROJECT_NAME  the cluster's name (as in deploy/.env: partita)
# PARTITA_WAIT          seconds that anything may take to become well (180)
# PARTITA_BEHIND        entries that a replica may be behind the newest of its group (1000)
set -euo pipefail
cd "$(dirname "$0")"

project=${COMPOSE_PROJECT_NAME:-$(sed -n 's/^COMPOSE_PROJECT_NAME=//p' .env)}
wait_s=${PARTITA_WAIT:-180}
behind=${PARTITA_BEHIND:-1000}
recreate=
services=()
all=(meta1 meta2 meta3 datanode1 datanode2 datanode3 frontend1 frontend2)

usage() { sed -n '2,/^set /p' rolling-restart.sh | sed '$d; s/^# \{0,1\}//'; }
say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { say "$*" >&2; exit 1; }

for argument in "$@"; do
  case "$argument" in
    --recreate) recreate=yes ;;
    --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) services+=("$argument") ;;
  esac
done
[ "${#services[@]}" -gt 0 ] || services=("${all[@]}")

compose() {
  if docker compose version >/dev/null 2>&1; then docker compose -p "$project" "$@"; else docker-compose -p "$project" "$@"; fi
}

container() {
  docker ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1" | head -n 1
}

health() {
  local id
  id=$(container "$1")
  [ -n "$id" ] && docker inspect --format '{{if .State.Running}}{{.State.Health.Status}}{{else}}down{{end}}' "$id"
}

# Why the last statement failed at a frontend.
reason=$(mktemp)
trap 'rm -f "$reason"' EXIT

# Asks whichever frontend answers, with the password and the authority of its container; columns are separated by tabs.
# A statement that no frontend took has failed.
sql() {
  local frontend id answer
  echo "there is no container of a frontend" >"$reason"
  for frontend in frontend1 frontend2; do
    id=$(container "$frontend")
    [ -n "$id" ] || continue
    if answer=$(timeout 30 docker exec "$id" partita sql --server 127.0.0.1:4003 --plain -c "$1" 2>"$reason"); then
      [ -z "$answer" ] || printf '%s\n' "$answer"
      return 0
    fi
  done
  return 1
}

no_answer() { echo "no frontend answers: $(head -n 1 "$reason")"; }

# What is not well, a line each; nothing when all is.
troubles() {
  sql "SELECT 'node ' || CAST(node AS STRING) || ' (' || address || ') is not heard of' FROM sys.nodes WHERE NOT live
       UNION ALL
       SELECT 'node ' || CAST(node AS STRING) || ' (' || address || ') misses replicas: ' || CAST(missing_replicas AS STRING)
         FROM sys.nodes WHERE missing_replicas > 0
       UNION ALL
       SELECT 'partition ' || CAST(r.partition AS STRING) || ' on node ' || CAST(r.node AS STRING) || ': ' || r.role ||
         CASE WHEN r.applied_index IS NULL THEN '' ELSE ', at ' || CAST(r.applied_index AS STRING) || ' of ' ||
         CAST(g.newest AS STRING) END
         FROM sys.replicas r
         JOIN (SELECT partition, max(applied_index) AS newest FROM sys.replicas GROUP BY partition) g
           ON r.partition = g.partition
         WHERE r.role NOT IN ('leader', 'follower') OR r.applied_index + $behind < g.newest
       UNION ALL
       SELECT 'partition ' || CAST(partition AS STRING) || ' has no leader' FROM sys.replicas
         GROUP BY partition HAVING sum(CASE WHEN role = 'leader' THEN 1 ELSE 0 END) = 0" ||
    no_answer
}

wait_healthy() {
  local until=$((SECONDS + wait_s))
  while [ "$(health "$1")" != healthy ]; do
    if [ "$SECONDS" -gt "$until" ]; then
      docker logs --tail 20 "$(container "$1")" >&2 || true
      fail "$1 is $(health "$1") after $wait_s s"
    fi
    sleep 0.5
  done
}

wait_well() {
  local until=$((SECONDS + wait_s)) found
  while found=$(troubles) && [ -n "$found" ]; do
    if [ "$SECONDS" -gt "$until" ]; then
      printf '%s\n' "$found" >&2
      fail "the cluster is not well after $wait_s s"
    fi
    sleep 0.5
  done
}

# Hands what a datanode leads to followers. The node does so itself when it is told to stop; what is done before
# needs no hurry. Meta may spread leaders evenly again meanwhile, so there is an end to it.
hand_over() {
  local service=$1 node until=$((SECONDS + 20)) led partition to
  node=$(sql "SELECT node FROM sys.nodes WHERE address = '$service:4020' AND live ORDER BY node DESC LIMIT 1") || node=
  [ -n "$node" ] || fail "no node is known as $service:4020"
  while :; do
    # For each partition that it leads, the follower on the node that leads least.
    led=$(sql "SELECT partition, node FROM (
                 SELECT f.partition, f.node, row_number() OVER (PARTITION BY f.partition ORDER BY n.leaders, f.node) AS place
                   FROM sys.replicas f
                   JOIN sys.replicas l ON l.partition = f.partition AND l.role = 'leader' AND l.node = $node
                   JOIN sys.nodes n ON n.node = f.node AND n.live
                  WHERE f.role = 'follower') AS followers WHERE place = 1") || fail "$(no_answer)"
    if [ -z "$led" ] || [ "$SECONDS" -gt "$until" ]; then break; fi
    while read -r partition to; do
      sql "ADMIN transfer_leader($partition, $to)" >/dev/null || true
    done <<<"$led"
    sleep 0.5
  done
}

restart() {
  local service=$1 began=$SECONDS
  [ -n "$(container "$service")" ] || fail "there is no container of $service in the project $project"
  case "$service" in datanode*) hand_over "$service" ;; esac
  if [ -n "$recreate" ]; then
    compose up -d --no-deps --force-recreate "$service" >/dev/null 2>&1 || fail "$service could not be made anew"
  else
    docker restart -t 30 "$(container "$service")" >/dev/null
  fi
  wait_healthy "$service"
  wait_well
  say "$service is back after $((SECONDS - began)) s"
}

# A table that is just being made has partitions without a leader for a moment.
for _ in $(seq 20); do
  found=$(troubles)
  case "$found" in
    "") break ;;
    # Waiting does not help, and wrong passwords are counted.
    *"SQLSTATE 28P01"*) fail "$found; after ALTER ROLE partita PASSWORD see deploy/certs.sh" ;;
  esac
  sleep 0.5
done
[ -z "$found" ] || { printf '%s\n' "$found" >&2; fail "the cluster is not well; nothing was restarted"; }
for service in "${services[@]}"; do
  restart "$service"
done
