"""Clients that write and read while the cluster is broken. They note in a ledger what was acknowledged, and check
what they read against it as they go.

    chaos_keyed    PRIMARY KEY (slot, id), by range of slot: one writer a partition, so that the time in which a
                   partition takes no writes can be told; keys are written again with growing numbers
    chaos_append   append mode, by hash: statements and COPYs of several rows over several partitions
    chaos_ddl_<n>  made, written once and dropped, so that the time in which meta takes no changes can be told
"""

import asyncio
import contextlib
import os
import random
import socket
import time

import psycopg

import ledger

# A fixed moment: the time index is part of the key, and keys are to be written again.
MOMENT = "2026-01-01 00:00:00"
SLOT_WIDTH = 1000
CONNECT_S = 3
# Longer than any answer should take; then the client gives up and takes another door.
STATEMENT_S = 30
# Between two writes of one writer.
PACE_S = 0.015
PAUSE_AFTER_FAILURE_S = 0.05
# Meta may take long for a change, and says so itself.
CHANGE_S = 90
# Bytes of a row while disks are to run full: logs take their room in advance.
HEAVY_BYTES = 20_000
# Tables that are there at once, made and dropped in turn.
TABLES_MAX = 3


class Failed(Exception):
    """A statement that did not return as it should. `sent` says whether the server can have seen it."""

    def __init__(self, text, sent, sqlstate=None):
        super().__init__(text)
        self.sent, self.sqlstate = sent, sqlstate


class Client:
    """One connection, to the door it prefers or the next that answers."""

    def __init__(self, doors, preferred):
        self.doors, self.preferred = doors, preferred % len(doors)
        self.at, self.connection, self.used = self.preferred, None, 0

    async def close(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    async def next_door(self):
        await self.close()
        self.at = (self.at + 1) % len(self.doors)

    async def connected(self):
        # Back to the own door now and then, so that one that came back has load.
        if self.connection is not None and self.at != self.preferred and self.used >= 100:
            await self.close()
            self.at = self.preferred
        if self.connection is None:
            host, port = self.doors[self.at]
            opening = psycopg.AsyncConnection.connect(
                host=host, port=port, user="partita", dbname="public", autocommit=True, connect_timeout=CONNECT_S
            )
            try:
                self.connection = await asyncio.wait_for(opening, CONNECT_S + 2)
            except (OSError, psycopg.Error, asyncio.TimeoutError) as error:
                await self.next_door()
                raise Failed(f"cannot connect to {host}:{port}: {first_line(error)}", sent=False) from error
            self.used = 0
        return self.connection

    async def run(self, work, timeout=STATEMENT_S):
        """Awaits `work(connection)`. A connection that does not answer in time is cut off, not cancelled: what
        stands still does not take a cancel request either."""
        connection = await self.connected()
        self.used += 1
        task = asyncio.ensure_future(work(connection))
        done, _ = await asyncio.wait({task}, timeout=timeout)
        late = not done
        if late:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as handle:
                handle.shutdown(socket.SHUT_RDWR)
        try:
            return await task
        except (psycopg.Error, OSError) as error:
            state = getattr(error, "sqlstate", None)
            if late or connection.closed:
                await self.next_door()
            text = f"no answer in {timeout} s" if late else f"{state or type(error).__name__}: {first_line(error)}"
            raise Failed(text, sent=True, sqlstate=state) from error

    async def rows(self, sql, parameters=None, timeout=STATEMENT_S):
        async def work(connection):
            cursor = await connection.execute(sql, parameters)
            return await cursor.fetchall() if cursor.description else []

        return await self.run(work, timeout)


class Load:
    """All clients, and what they know."""

    def __init__(self, doors, seed, partitions, replicas):
        self.doors, self.seed, self.partitions, self.replicas = doors, seed, partitions, replicas
        self.keyed, self.appended = ledger.Keyed(), ledger.Appended()
        self.timelines = [ledger.Timeline() for _ in range(partitions)]
        self.tables, self.changes = ledger.Tables(), ledger.Timeline()
        self.errors, self.violations, self.reads = {}, [], 0
        self.stopping, self.tasks = asyncio.Event(), []
        # Whether rows are to be large.
        self.heavy = False

    async def create(self):
        options = self.table_options()
        splits = ", ".join(f"({slot * SLOT_WIDTH})" for slot in range(1, self.partitions))
        by_range = f"PARTITION BY RANGE (slot) SPLIT AT ({splits})" if splits else ""
        client = Client(self.doors, 0)
        for sql in (
            "CREATE TABLE chaos_keyed (slot BIGINT, id BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, pad STRING, "
            f"PRIMARY KEY (slot, id)) {by_range} {with_options(options)}",
            "CREATE TABLE chaos_append (writer BIGINT, seq BIGINT, ts TIMESTAMP(3) TIME INDEX, pad STRING, "
            f"PRIMARY KEY (writer, seq)) PARTITION BY HASH (seq) PARTITIONS 4 {with_options({**options, 'append_mode': 'true'})}",
        ):
            await client.rows(sql, timeout=90)
        await client.close()

    def table_options(self):
        return {"replication_factor": self.replicas} if self.replicas > 1 else {}

    def start(self):
        for slot in range(self.partitions):
            self.spawn(self.write_keyed(slot))
        for writer in range(2):
            self.spawn(self.write_appended(writer))
        for reader in range(2):
            self.spawn(self.read(reader))
        self.spawn(self.change_tables())

    def spawn(self, work):
        self.tasks.append(asyncio.ensure_future(work))

    async def stop(self):
        self.stopping.set()
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self.violations.append(f"a client of this test failed: {outcome!r}")

    def failed(self, what, failure):
        text = f"{what}: {failure}"[:160]
        self.errors[text] = self.errors.get(text, 0) + 1

    async def write_keyed(self, slot):
        dice, client = random.Random(f"{self.seed} keyed {slot}"), Client(self.doors, slot)
        # The values of a partition lie all over its range.
        key_slot, next_id, ids = slot * SLOT_WIDTH + SLOT_WIDTH // 2, 0, []
        while not self.stopping.is_set():
            key = dice.choice(ids) if ids and dice.random() < 0.3 else None
            if key is None or not self.keyed.settled(key_slot, key):
                key, next_id = next_id, next_id + 1
            state = self.keyed.keys[key_slot].get(key)
            n = 1 if state is None or state.acked is None else state.acked + 1
            pad = "x" * dice.randrange(200)
            sql = f"INSERT INTO chaos_keyed (slot, id, ts, n, pad) VALUES ({key_slot}, {key}, '{MOMENT}', {n}, '{pad}')"
            began = time.monotonic()
            self.keyed.begin(key_slot, key, n)
            try:
                await client.rows(sql)
                self.keyed.acknowledge(key_slot, key)
                self.timelines[slot].add(began, time.monotonic(), True)
                ids.append(key)
                await asyncio.sleep(PACE_S)
            except Failed as failure:
                self.timelines[slot].add(began, time.monotonic(), False)
                self.failed("write", failure)
                if not failure.sent:
                    self.keyed.never_sent(key_slot, key)
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        await client.close()

    async def write_appended(self, writer):
        dice, client, seq = random.Random(f"{self.seed} append {writer}"), Client(self.doors, writer), 0
        while not self.stopping.is_set():
            rows = [(writer, seq + at) for at in range(dice.randrange(1, 20))]
            seq += len(rows)
            pad = "y" * (HEAVY_BYTES if self.heavy else dice.randrange(100))
            self.appended.begin(rows)
            try:
                await client.run(copy_rows(rows, pad) if dice.random() < 0.3 else insert_rows(rows, pad))
                self.appended.acknowledge(rows)
                await asyncio.sleep(PACE_S * 2)
            except Failed as failure:
                self.failed("append", failure)
                if not failure.sent:
                    self.appended.never_sent(rows)
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        await client.close()

    async def change_tables(self):
        client, number, names = Client(self.doors, 1), 0, []
        while not self.stopping.is_set():
            number += 1
            name = f"chaos_ddl_{number}"
            create = f"CREATE TABLE {name} (id BIGINT, v BIGINT, PRIMARY KEY (id)) {with_options(self.table_options())}"
            if await self.change(client, name, create, self.tables.created):
                names.append(name)
                try:
                    await client.rows(f"INSERT INTO {name} VALUES (1, 1)")
                except Failed as failure:
                    self.failed("write of a new table", failure)
            if len(names) > TABLES_MAX:
                name = names.pop(0)
                await self.change(client, name, f"DROP TABLE {name}", self.tables.dropped)
            await asyncio.sleep(0.5)
        await client.close()

    async def change(self, client, name, sql, done):
        began = time.monotonic()
        self.tables.begin(name)
        try:
            await client.rows(sql, timeout=CHANGE_S)
        except Failed as failure:
            self.changes.add(began, time.monotonic(), False)
            self.failed("DDL", failure)
            return False
        done(name)
        self.changes.add(began, time.monotonic(), True)
        return True

    async def read(self, reader):
        dice, client = random.Random(f"{self.seed} read {reader}"), Client(self.doors, reader)
        seen = {}
        while not self.stopping.is_set():
            try:
                check = dice.choice([self.read_key, self.count_slot, self.count_appended])
                await check(client, dice, seen)
                self.reads += 1
            except Failed as failure:
                self.failed("read", failure)
                # Wrong bytes must show as an error, never as rows; which is all that is asked here.
            await asyncio.sleep(0.05)
        await client.close()

    async def read_key(self, client, dice, _seen):
        slot = dice.randrange(self.partitions) * SLOT_WIDTH + SLOT_WIDTH // 2
        if not self.keyed.certain[slot]:
            return
        key = dice.choice(self.keyed.certain[slot])
        state = self.keyed.keys[slot][key]
        least = state.acked
        rows = await client.rows(f"SELECT n FROM chaos_keyed WHERE slot = {slot} AND id = {key}")
        most = max(state.may_hold())
        if len(rows) != 1 or not least <= rows[0][0] <= most:
            self.violate(f"key ({slot}, {key}) reads {rows}, and {least} was acknowledged before, {most} written until after")

    async def count_slot(self, client, dice, seen):
        slot = dice.randrange(self.partitions) * SLOT_WIDTH + SLOT_WIDTH // 2
        least, _ = self.keyed.bounds(slot)
        rows = await client.rows(f"SELECT count(*) FROM chaos_keyed WHERE slot = {slot}")
        _, most = self.keyed.bounds(slot)
        self.check_count(f"slot {slot}", rows[0][0], max(least, seen.get(slot, 0)), most)
        seen[slot] = rows[0][0]

    async def count_appended(self, client, _dice, seen):
        least = max(len(self.appended.acked), seen.get("append", 0))
        rows = await client.rows("SELECT count(*) FROM chaos_append")
        self.check_count("chaos_append", rows[0][0], least, self.appended.tried)
        seen["append"] = rows[0][0]

    def check_count(self, what, count, least, most):
        if not least <= count <= most:
            self.violate(f"{what} has {count} rows; at least {least} and at most {most} must be there")

    def silent_since(self, moment):
        """What has not succeeded since then, a line each."""
        found = [
            f"no write to partition {slot} of chaos_keyed" for slot, line in enumerate(self.timelines) if line.first_success(moment) is None
        ]
        return found + ([] if self.changes.first_success(moment) is not None else ["no change of the catalog"])

    def violate(self, text):
        self.violations.append(f"{time.strftime('%T')} {text}")
        print(f"VIOLATION {text}", flush=True)


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def with_options(options):
    said = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"WITH ({said})" if said else ""


def insert_rows(rows, pad):
    values = ", ".join(f"({writer}, {seq}, '{MOMENT}', '{pad}')" for writer, seq in rows)

    async def work(connection):
        await connection.execute(f"INSERT INTO chaos_append (writer, seq, ts, pad) VALUES {values}")

    return work


def copy_rows(rows, pad):
    async def work(connection):
        cursor = connection.cursor()
        async with cursor.copy("COPY chaos_append (writer, seq, ts, pad) FROM STDIN") as copy:
            for writer, seq in rows:
                await copy.write_row((writer, seq, MOMENT, pad))

    return work
