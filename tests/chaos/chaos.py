"""Breaks a cluster by a schedule that follows from a seed, measures, and checks. See tests/chaos/run."""

import argparse
import asyncio
import json
import os
import pathlib
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import faults
from cluster import ROOT, Broken, Compose, Processes, Standalone
from load import SLOT_WIDTH, Client, Failed, Load

# Until everything is well again after a fault was undone.
WELL_S = 120
# Until an operator lends a hand, where that may be needed.
PATIENCE_S = 40
# Until damage must have been repaired once it can be seen, when nobody says otherwise; between two readings meanwhile.
REPAIR_MAX_S = 30
PROBE_PAUSE_S = 0.5
# How often a supervisor looks whether somebody has ended.
SUPERVISE_S = 1
# Load before the first fault and after each recovery.
CALM_S = 3
# Entries that a replica may be behind the newest of its group while clients write.
BEHIND_MAX = 1000
# Changes of the catalog that a meta may be behind.
META_BEHIND_MAX = 20

NODES_SQL = "SELECT node, address, live, missing_replicas FROM sys.nodes"
REPLICAS_SQL = 'SELECT "table", partition, node, role, applied_index, failure FROM sys.replicas'
METAS_SQL = "SELECT address, answers, leads, applied_index FROM sys.metas"
PARTITIONS_SQL = 'SELECT "table", partition, node, leader, start_key FROM sys.partitions'


def arguments(argv=None):
    kinds = "\n".join(f"  {kind.name:16} {kind.text}" for kind in faults.KINDS.values())
    parser = argparse.ArgumentParser(
        prog="tests/chaos/run", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"faults:\n{kinds}"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--compose", action="store_true", help="containers (default)")
    where.add_argument("--processes", action="store_true", help="the same roles as processes on loopback")
    where.add_argument("--standalone", action="store_true", help="one process with every role")
    parser.add_argument(
        "--tls", action="store_true", help="certificates for all processes, and a password for clients; containers always have them"
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats the schedule of a run")
    parser.add_argument("--rounds", type=int, default=1, help="times that every fault is done (1)")
    parser.add_argument("--faults", default="", help="these kinds only, with commas")
    parser.add_argument("--partitions", type=int, default=6, help="of the table that is measured (6)")
    parser.add_argument("--replicas", type=int, default=3, help="of each partition (3)")
    parser.add_argument("--small-disk-mib", type=int, default=512, help="size of the datanodes' disks; 0: no small disks")
    parser.add_argument("--option", action="append", default=[], metavar="ROLE:ARGUMENTS", help="more arguments for a role")
    parser.add_argument("--port", type=int, default=14300, help="first port of processes (14300)")
    parser.add_argument("--failover-max", type=float, default=None, metavar="S", help="fail when writes stop for longer")
    parser.add_argument(
        "--repair-max", type=float, default=REPAIR_MAX_S, metavar="S",
        help=f"fail when a damaged node is not well for longer ({REPAIR_MAX_S})",
    )  # fmt: skip
    parser.add_argument("--out", type=pathlib.Path, default=None, help="results as JSON")
    parser.add_argument("--keep", action="store_true", help="keep data and logs, also when all is well")
    return parser.parse_args(argv)


def make_cluster(options, work):
    more = {}
    for option in options.option:
        role, _, rest = option.partition(":")
        more.setdefault(role, []).extend(shlex.split(rest))
    binary = os.environ.get("PARTITA_BIN", ROOT / "target" / "release" / "partita")
    if (options.standalone or options.processes) and not pathlib.Path(binary).exists():
        sys.exit(f"{binary} is not there; build it, or say where it is with PARTITA_BIN")
    if options.standalone:
        return Standalone(binary, work, options.port, more, options.small_disk_mib, options.tls)
    if options.processes:
        return Processes(binary, work, options.port, more, options.small_disk_mib, options.tls)
    return Compose(os.environ.get("PARTITA_IMAGE", "partita:latest"), work, more, options.small_disk_mib)


def troubles_of(nodes, replicas, partitions, datanodes, behind_max):
    """What is not well, a line each. A cluster without sys.nodes (`nodes` is None) is judged by its partitions."""
    found = []
    if nodes is None:
        return [f"partition {partition} has no leader" for _, partition, _, leader, _ in partitions if not leader]
    for node, address, live, missing in nodes:
        if not live:
            found.append(f"node {node} ({address}) is not heard of")
        elif missing:
            found.append(f"node {node} ({address}) misses {missing} replicas")
    live = sum(1 for node in nodes if node[2])
    if live < datanodes:
        found.append(f"{live} of {datanodes} nodes are heard of")
    newest, led = {}, set()
    for _, partition, _, role, applied, _ in replicas:
        newest[partition] = max(newest.get(partition, 0), applied or 0)
        if role == "leader":
            led.add(partition)
    for _, partition, node, role, applied, failure in replicas:
        if role not in ("leader", "follower"):
            found.append(f"partition {partition} on node {node}: {role}{': ' + failure if failure else ''}")
        elif (applied or 0) + behind_max < newest[partition]:
            found.append(f"partition {partition} on node {node}: at {applied} of {newest[partition]}")
    return found + [f"partition {partition} has no leader" for partition in sorted(newest.keys() - led)]


def troubles_of_metas(metas):
    """What is not well with meta's group, a line each: all answer, one leads, and none is far behind."""
    found = [f"meta at {address} does not answer" for address, answers, _, _ in metas if not answers]
    if metas and sum(bool(leads) for _, _, leads, _ in metas) != 1:
        found.append("meta has no leader, or several")
    newest = max((applied or 0 for _, _, _, applied in metas), default=0)
    behind = [row for row in metas if row[1] and (row[3] or 0) + META_BEHIND_MAX < newest]
    return found + [f"meta at {address} is at {applied} of {newest}" for address, _, _, applied in behind]


class Run:
    """One run: a cluster, its load, the faults and what came of them."""

    def __init__(self, options, cluster, load):
        self.options, self.cluster, self.load = options, cluster, load
        self.results, self.wrong = [], []
        self.client = Client(cluster.doors(), 0)
        self.has_nodes = True
        # Which partition each of the measured table's slots is.
        self.slots = {}
        # Places that were damaged, by their class.
        self.flips = {}

    async def ask(self, sql, timeout=15):
        """Asks until a door answers, each once."""
        failure = None
        for _ in range(len(self.cluster.doors()) + 1):
            try:
                return await self.client.rows(sql, timeout=timeout)
            except Failed as failed:
                failure = failed
                if failed.sqlstate:
                    break
        raise failure

    async def troubles(self, behind_max=BEHIND_MAX):
        try:
            partitions = await self.ask(PARTITIONS_SQL)
            nodes = await self.ask(NODES_SQL) if self.has_nodes else None
            replicas = await self.ask(REPLICAS_SQL) if self.has_nodes else []
            metas = await self.ask(METAS_SQL) if self.cluster.of_role("meta") else []
        except Failed as failure:
            if failure.sqlstate == "42P01" and self.options.standalone:
                self.has_nodes = False
            return [f"no answer: {failure}"]
        expected = len(self.cluster.of_role("datanode")) or 1
        return troubles_of(nodes, replicas, partitions, expected, behind_max) + troubles_of_metas(metas)

    async def wait_well(self, seconds=WELL_S, behind_max=BEHIND_MAX, since=None):
        """Seconds until nothing is wrong, and what still is when that takes too long. With `since`, clients must
        have written to every partition and changed the catalog since then."""
        began = time.monotonic()
        while True:
            found = await self.troubles(behind_max)
            if since is not None:
                found += self.load.silent_since(since)
            spent = time.monotonic() - began
            if not found or spent > seconds:
                return spent, found
            await asyncio.sleep(0.2)

    async def leaders(self):
        """node -> slots of the measured table whose partitions it leads; and the members' nodes."""
        rows = await self.ask(PARTITIONS_SQL)
        mine = [row for row in rows if row[0] == "chaos_keyed"]
        mine.sort(key=lambda row: lower_bound(row[4]))
        self.slots = {row[1]: slot for slot, row in enumerate(mine)}
        led = {}
        for _, partition, node, leader, _ in mine:
            if leader:
                led.setdefault(node, []).append(self.slots[partition])
        nodes = {}
        if self.has_nodes:
            # The newest node of an address: a wiped one came back under another number.
            for node, address, live, _ in sorted(await self.ask(NODES_SQL)):
                if live or address not in nodes:
                    nodes[address] = node
        by_name = {
            member.name: led.get(nodes.get(member.address), []) for member in self.cluster.members if member.address in nodes
        }
        if self.options.standalone:
            by_name = {"server": list(range(self.options.partitions))}
        return by_name, {member.name: nodes[member.address] for member in self.cluster.members if member.address in nodes}

    async def each(self, verb, members):
        """A verb for all members at once, beside the load."""
        await asyncio.gather(*(asyncio.to_thread(getattr(self.cluster, verb), member) for member in members))

    async def inject(self, fault):
        led, nodes = await self.leaders()
        targets = faults.choose(fault, self.cluster.members, {name: len(slots) for name, slots in led.items()})
        names = [member.name for member in targets]
        slots = sorted({slot for name in names for slot in led.get(name, [])})
        if fault.kind.role in ("frontend", "meta", "*"):
            slots = list(range(self.options.partitions))
        say(f"#{fault.number} {fault.kind.name}: {', '.join(names)} for {fault.hold:.1f} s; partitions {slots}")
        notes = []
        began = time.monotonic()
        try:
            undone = await self.do_and_undo(fault, targets, notes)
        except Broken as broken:
            self.wrong.append(f"#{fault.number} {fault.kind.name}: {broken}")
            undone = time.monotonic()
        patience = PATIENCE_S if fault.kind.verb == "fill" else WELL_S
        if fault.kind.name == "wipe-datanode":
            await self.replace(targets[0], nodes[names[0]], notes)
        spent, found = await self.wait_well(patience, since=undone)
        if not found and fault.kind.harm in ("corrupt", "flip") and fault.kind.role == "datanode":
            after_reading, found = await self.wait_repaired(nodes[names[0]])
            spent = max(spent, after_reading)
        if found and fault.kind.verb == "fill":
            notes.append("; ".join(found[:3]))
            found = await self.mend(targets[0], notes)
            spent = time.monotonic() - undone
        await asyncio.sleep(CALM_S)
        if found:
            self.wrong.append(f"#{fault.number} {fault.kind.name}: not well after {spent:.0f} s: {'; '.join(found[:5])}")
        self.results.append(self.measure(fault, names, slots, began, undone, spent, notes))
        say("   " + line_of(self.results[-1]))

    async def do_and_undo(self, fault, targets, notes):
        """Returns when it began to be undone."""
        if fault.kind.verb == "roll":
            await asyncio.to_thread(self.cluster.roll)
            return time.monotonic()
        self.load.heavy = fault.kind.verb == "fill"
        if fault.kind.harm:
            await self.flush()
        if fault.kind.orders:
            await asyncio.to_thread(self.cluster.disturb, targets[0], fault.kind.orders)
        else:
            await self.each(fault.kind.verb, targets)
        if fault.kind.harm:
            harmed = await asyncio.to_thread(getattr(self.cluster, fault.kind.harm), targets[0], fault.draw)
            self.note_places(harmed, notes)
        await asyncio.sleep(fault.hold)
        undone = time.monotonic()
        self.load.heavy = False
        await self.each(fault.kind.undo, targets)
        return undone

    async def supervise(self):
        """Starts members again whose disk has failed, until it is cancelled."""
        while True:
            for name in await asyncio.to_thread(self.cluster.revive):
                say(f"   {name} has ended over its disk, and is started again")
            await asyncio.sleep(SUPERVISE_S)

    async def flush(self):
        """Has rows in files, and after a moment again some in logs only."""
        for name in ("chaos_keyed", "chaos_append"):
            try:
                await self.ask(f"ADMIN flush_table('{name}')", 60)
            except Failed as failure:
                say(f"   not flushed: {failure}")
        await asyncio.sleep(1)

    def note_places(self, harmed, notes):
        for place in harmed:
            self.flips[place.kind] = self.flips.get(place.kind, 0) + 1
        if harmed:
            notes.append(f"{len(harmed)} places: {', '.join(str(place) for place in harmed[:30])}")

    async def mend(self, member, notes):
        """What an operator does with a node whose disk was full: starts it again."""
        notes.append("restarted by the operator")
        if await asyncio.to_thread(self.cluster.alive, member):
            await self.each("stop", [member])
        await self.each("start", [member])
        _, found = await self.wait_well(since=time.monotonic())
        return found

    async def replace(self, member, old, notes):
        """What an operator does about a node whose files are gone: it came back as another one, so the old one is removed."""
        notes.append(f"node {old} removed by the operator")
        until = time.monotonic() + WELL_S
        for order in (f"ADMIN drain_node({old})", f"ADMIN remove_node({old})"):
            while True:
                try:
                    await self.ask(order)
                    break
                except Failed as failure:
                    if time.monotonic() > until:
                        self.wrong.append(f"{order}: {failure}")
                        return
                    await asyncio.sleep(0.5)

    async def wait_repaired(self, node):
        """Reads what a damaged node has, for some damage shows only then; seconds until all is right again, and what is not."""
        found = await self.probe(node)
        began = time.monotonic()
        while True:
            left = self.options.repair_max - (time.monotonic() - began)
            _, found = await self.wait_well(max(left, 0))
            found = found or await self.probe(node)
            spent = time.monotonic() - began
            if not found or spent > self.options.repair_max:
                return spent, found
            await asyncio.sleep(PROBE_PAUSE_S)

    async def probe(self, node):
        """Makes a node lead what it has and reads it, so that damage shows: rows or an error, never other rows. Returns
        what it could not do."""
        found = []
        for name, partition, place, _, _, _ in sorted(await self.ask(REPLICAS_SQL)):
            if place == node and name in ("chaos_keyed", "chaos_append"):
                try:
                    await self.transfer(partition, node, 5)
                except Failed as failure:
                    found.append(f"partition {partition} is not led by node {node}: {failure}")
        for slot in range(self.options.partitions):
            key_slot = slot * SLOT_WIDTH + SLOT_WIDTH // 2
            least, _ = self.load.keyed.bounds(key_slot)
            sql = f"SELECT count(*), sum(length(pad)), sum(n), max(ts) FROM chaos_keyed WHERE slot = {key_slot}"
            found += await self.count_of(f"slot {key_slot}", sql, least, lambda: self.load.keyed.bounds(key_slot)[1])  # noqa: B023
        least = len(self.load.appended.acked)
        sql = "SELECT count(*), sum(length(pad)), max(seq), max(ts) FROM chaos_append"
        return found + await self.count_of("chaos_append", sql, least, lambda: self.load.appended.tried)

    async def count_of(self, what, sql, least, most):
        """Errors of a reading, if it has any; other numbers than these are a violation."""
        try:
            rows = await self.ask(sql, 30)
        except Failed as failure:
            return [f"{what}: {failure}"]
        self.load.check_count(what, rows[0][0], least, most())
        return []

    async def transfer(self, partition, node, patience=30):
        """Until the node leads the partition."""
        until = time.monotonic() + patience
        failure = Failed(f"node {node} did not become the leader", sent=True)
        while time.monotonic() < until:
            rows = await self.ask(f"SELECT node FROM sys.replicas WHERE partition = {partition} AND role = 'leader'")
            if (node,) in rows:
                return
            try:
                await self.ask(f"ADMIN transfer_leader({partition}, {node})")
            except Failed as failed:
                failure = failed
            await asyncio.sleep(0.2)
        raise failure

    def measure(self, fault, names, slots, began, undone, spent, notes):
        now = time.monotonic()
        timelines = self.load.timelines
        waits = {}
        for slot in slots:
            first = timelines[slot].first_success(began)
            waits[slot] = None if first is None else round(first - began, 3)
        change = self.load.changes.first_success(began)
        known = [wait for wait in waits.values() if wait is not None]
        others = [slot for slot in range(self.options.partitions) if slot not in slots]
        gap = lambda chosen: max((round(timelines[slot].longest_gap(began, now), 3) for slot in chosen), default=None)  # noqa: E731
        result = {
            "number": fault.number,
            "fault": fault.kind.name,
            "members": names,
            "hold_s": fault.hold,
            "undone_after_s": round(undone - began, 3),
            "partitions": len(slots),
            "failover_s": waits,
            "failover_median_s": statistics.median(known) if known else None,
            "failover_max_s": max(known, default=None),
            "stalled": sorted(slot for slot, wait in waits.items() if wait is None),
            "longest_gap_s": gap(slots),
            "longest_gap_of_others_s": gap(others),
            "change_again_s": None if change is None else round(change - began, 3),
            "failed_writes": sum(timeline.failures(began, now) for timeline in timelines),
            "well_after_s": round(spent, 2),
            "survivable": fault.kind.survivable,
            "notes": notes,
        }
        if result["stalled"]:
            self.wrong.append(f"#{fault.number} {fault.kind.name}: no write to partitions {result['stalled']} since")
        limit = self.options.failover_max
        if fault.kind.harm in ("corrupt", "flip") and result["well_after_s"] > self.options.repair_max:
            self.wrong.append(f"#{fault.number} {fault.kind.name}: repaired only after {result['well_after_s']} s")
        if limit is not None and fault.kind.survivable and (result["longest_gap_s"] or 0) > limit:
            self.wrong.append(f"#{fault.number} {fault.kind.name}: writes stopped for {result['longest_gap_s']} s")
        return result

    async def check_everything(self):
        """All rows, at every door, and at every replica of every partition in turn."""
        _, found = await self.wait_well(behind_max=0)
        self.wrong += [f"at the end: {text}" for text in found]
        for door in range(len(self.cluster.doors())):
            client = Client([self.cluster.doors()[door]], 0)
            await self.compare(client, f"door {door + 1}")
            await client.close()
        if not self.has_nodes or self.options.standalone:
            return
        for place in range(self.options.replicas):
            await self.check_replicas(place)

    async def check_replicas(self, place):
        """Reads each partition from one of its replicas, which is made its leader. Leaders are spread evenly, so
        that meta has no reason to move them; where it did all the same, it is done again."""
        rows = sorted(await self.ask(REPLICAS_SQL))
        nodes = {}
        for name, partition, node, _, _, _ in rows:
            if name in ("chaos_keyed", "chaos_append"):
                nodes.setdefault(partition, []).append(node)
        wanted = {
            partition: places[(place + at) % len(places)] for at, (partition, places) in enumerate(sorted(nodes.items()))
        }
        for _ in range(5):
            try:
                for partition, node in wanted.items():
                    await self.transfer(partition, node)
            except Failed as failure:
                self.wrong.append(f"at the end: partition {partition}: {failure}")
                return
            wrong = await self.compare(self.client, f"replica {place + 1} of each partition")
            led = {row[1]: row[2] for row in await self.ask(REPLICAS_SQL) if row[3] == "leader"}
            if wrong or all(led.get(partition) == node for partition, node in wanted.items()):
                return
        self.wrong.append(f"at the end: leaders did not stay where they were put: {wanted}, then {led}")

    async def compare(self, client, where):
        try:
            keyed = await client.rows("SELECT slot, id, n FROM chaos_keyed", timeout=120)
            appended = await client.rows("SELECT writer, seq FROM chaos_append", timeout=120)
            tables = await client.rows('SELECT "table" FROM sys.tables')
        except Failed as failure:
            self.wrong.append(f"at the end, {where}: {failure}")
            return True
        names = [name for (name,) in tables if name.startswith("chaos_ddl_")]
        wrong = self.load.keyed.compare(keyed) + self.load.appended.compare(appended) + self.load.tables.compare(names)
        self.wrong += [f"at the end, {where}: {text}" for text in wrong]
        say(f"{where}: {len(keyed)} keyed and {len(appended)} appended rows, {'all as they should be' if not wrong else wrong}")
        return bool(wrong)


def lower_bound(start_key):
    """The number in a partition's start as sys.partitions shows it; the first partition has none."""
    digits = "".join(character for character in (start_key or "") if character.isdigit() or character == "-")
    return int(digits) if digits.strip("-") else -(2**63)


def say(text):
    print(f"{time.strftime('%T')} {text}", flush=True)


def seconds(value):
    return "-" if value is None else f"{value:.2f}"


def line_of(result):
    return (
        f"writes again after {seconds(result['failover_median_s'])} s (median), {seconds(result['failover_max_s'])} s (max); "
        f"others stood {seconds(result['longest_gap_of_others_s'])} s; well {result['well_after_s']:.1f} s after it ended"
        f"{'; ' + '; '.join(result['notes']) if result['notes'] else ''}"
    )


def table(results):
    head = ("#", "fault", "of", "held s", "parts", "again: median", "max s", "gap s", "others' gap", "DDL s", "failed", "well s")
    rows = [
        (
            str(result["number"]),
            result["fault"],
            ",".join(result["members"]) if len(result["members"]) < 3 else f"{len(result['members'])} members",
            f"{result['undone_after_s']:.1f}",
            str(result["partitions"]),
            seconds(result["failover_median_s"]),
            seconds(result["failover_max_s"]),
            seconds(result["longest_gap_s"]),
            seconds(result["longest_gap_of_others_s"]),
            seconds(result["change_again_s"]),
            str(result["failed_writes"]),
            f"{result['well_after_s']:.1f}",
        )
        for result in results
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    line = lambda row: "  ".join(cell.ljust(width) if at < 3 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths)))  # noqa: E731
    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def command_line(options):
    parts = ["tests/chaos/run", "--standalone" if options.standalone else "--processes" if options.processes else "--compose"]
    parts += ["--seed", str(options.seed), "--rounds", str(options.rounds)]
    for name in ("faults", "partitions", "replicas", "small_disk_mib"):
        value = getattr(options, name)
        if value != "":
            parts += [f"--{name.replace('_', '-')}", str(value)]
    if options.tls:
        parts.append("--tls")
    for option in options.option:
        parts += ["--option", option]
    return shlex.join(parts)


def summary(options, run, plan, spent):
    load = run.load
    latencies = sorted(latency for timeline in load.timelines for latency in timeline.latencies())
    at = lambda share: round(latencies[min(len(latencies) - 1, int(len(latencies) * share))] * 1e3, 2) if latencies else None  # noqa: E731
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "seed": options.seed,
        "commit": commit,
        "command": command_line(options),
        "seconds": round(spent, 1),
        "faults": len(plan),
        "acknowledged_keys": load.keyed.acknowledged(),
        "acknowledged_writes": len(latencies),
        "acknowledged_appended_rows": load.appended.acknowledged(),
        "unknown_appended_rows": len(load.appended.open),
        "reads_checked": load.reads,
        "write_ms": {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)},
        "errors_seen_by_clients": dict(sorted(load.errors.items(), key=lambda item: -item[1])),
        "places_damaged": dict(sorted(run.flips.items())),
        "results": run.results,
        "wrong": load.violations + run.wrong,
    }


async def execute(options, cluster, plan):
    began = time.monotonic()
    await asyncio.to_thread(cluster.up)
    load = Load(cluster.doors(), options.seed, options.partitions, options.replicas)
    run = Run(options, cluster, load)
    _, found = await run.wait_well()
    if found:
        raise Broken(f"the cluster is not well: {'; '.join(found)}")
    await load.create()
    _, found = await run.wait_well()
    if found:
        raise Broken(f"the new tables are not well: {'; '.join(found)}")
    say(f"up after {time.monotonic() - began:.1f} s")
    load.start()
    supervisor = asyncio.ensure_future(run.supervise())
    try:
        await asyncio.sleep(CALM_S)
        for fault in plan:
            await run.inject(fault)
    finally:
        await load.stop()
    try:
        await run.check_everything()
    except Failed as failure:
        run.wrong.append(f"at the end: {failure}")
    supervisor.cancel()
    await run.client.close()
    return summary(options, run, plan, time.monotonic() - began)


def main():
    options = arguments()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**32)
    if options.standalone:
        options.replicas = 1
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-chaos-"))
    # The image's user has to pass through to its disk.
    work.chmod(0o755)
    cluster = make_cluster(options, work)
    roles = {member.role for member in cluster.members}
    try:
        kinds = faults.possible([name for name in options.faults.split(",") if name], roles, cluster.verbs)
    except ValueError as error:
        sys.exit(str(error))
    plan = faults.schedule(options.seed, kinds, options.rounds)
    if any(kind.orders for kind in kinds):
        cluster.preload()
    say(f"repeat with: {command_line(options)}")
    result = None
    try:
        result = asyncio.run(execute(options, cluster, plan))
    except Broken as error:
        say(f"BROKEN {error}")
    finally:
        keep = options.keep or result is None or result["wrong"]
        if keep:
            logs = pathlib.Path(tempfile.mkdtemp(prefix="partita-chaos-logs-"))
            cluster.logs(logs)
            say(f"logs of the members: {logs}")
        cluster.destroy()
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    if result is None:
        sys.exit(2)
    print("\n" + table(result["results"]) + "\n")
    for text, count in list(result["errors_seen_by_clients"].items())[:12]:
        print(f"{count:6} x {text}")
    print(
        f"\n{result['faults']} faults in {result['seconds']:.0f} s; acknowledged: {result['acknowledged_writes']} writes of "
        f"{result['acknowledged_keys']} keys, {result['acknowledged_appended_rows']} appended rows; {result['reads_checked']} reads "
        f"checked; a write took {result['write_ms']['p50']} ms (median), {result['write_ms']['p99']} ms (99 of 100)"
    )
    if result["places_damaged"]:
        by_class = ", ".join(f"{count} {kind}" for kind, count in result["places_damaged"].items())
        print(f"places damaged: {sum(result['places_damaged'].values())}: {by_class}")
    for text in result["wrong"]:
        print(f"WRONG {text}")
    print("nothing was lost, doubled or changed" if not result["wrong"] else f"repeat with: {result['command']}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()
