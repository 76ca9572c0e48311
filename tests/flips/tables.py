"""Small tables in all states that a row can be in, and what every reading of them must answer.

Rows of each partition lie in two files that overlap, and in the log only; some were overwritten, some deleted.
"""

import collections
import dataclasses
import hashlib

# Keys of one partition of a table by range.
WIDTH = 100
MOMENT = "2026-01-01 00:00:00"
# Keys of a partition by when they are first written: before the first flush, before the second, after it.
FIRST, SECOND, THIRD = range(20), range(20, 30), range(30, 38)
AGAIN, GONE, LAST_AGAIN = range(0, 20, 3), range(1, 20, 9), range(0, 30, 6)
# What a write after the damage is known by.
AFTER = 60


@dataclasses.dataclass(frozen=True)
class Table:
    """`scheme` is range, hash or append; each has `partitions` partitions, which are merged as they like if it `merges`."""

    name: str
    scheme: str
    partitions: int
    merges: bool = False

    def create(self, replicas=1):
        options = {"replication_factor": str(replicas)} if replicas > 1 else {}
        if not self.merges:
            options.update(auto_partitioning_by_load="disabled", auto_partitioning_min_partitions_count=self.partitions)
        if self.scheme == "range":
            splits = ", ".join(f"({at * WIDTH})" for at in range(1, self.partitions))
            by = f"PARTITION BY RANGE (k) SPLIT AT ({splits})"
        else:
            by = f"PARTITION BY HASH (k) PARTITIONS {self.partitions}"
        if self.scheme == "append":
            options["append_mode"] = "true"
        said = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        columns = "k BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, s STRING, PRIMARY KEY (k)"
        return f"CREATE TABLE {self.name} ({columns}) {by} {f'WITH ({said})' if said else ''}"

    def keys(self, numbers):
        return [slot * WIDTH + number for slot in range(self.partitions) for number in numbers]


def tables(ranges=8, hashes=3, appends=2, merging=1):
    return (
        [Table(f"r{at}", "range", 3) for at in range(ranges)]
        + [Table(f"m{at}", "range", 3, merges=True) for at in range(merging)]
        + [Table(f"h{at}", "hash", 3) for at in range(hashes)]
        + [Table(f"a{at}", "append", 2) for at in range(appends)]
    )


def word(table, key, number):
    """The text of a row, which no other row has."""
    return hashlib.sha256(f"{table} {key} {number}".encode()).hexdigest()[:24]


class Content:
    """What was acknowledged. A row is (k, n, s)."""

    def __init__(self, table):
        self.table = table
        self.rows = {} if table.scheme != "append" else collections.Counter()

    def write(self, keys, number):
        """The statement that writes these keys, and the rows in it."""
        rows = [(key, number + key % 7, word(self.table.name, key, number)) for key in keys]
        values = ", ".join(f"({key}, '{MOMENT}', {n}, '{text}')" for key, n, text in rows)
        return f"INSERT INTO {self.table.name} (k, ts, n, s) VALUES {values}", rows

    def acknowledge(self, rows):
        if self.table.scheme == "append":
            self.rows.update(rows)
        else:
            self.rows.update((row[0], row) for row in rows)

    def delete(self, keys):
        for key in keys:
            self.rows.pop(key, None)

    def all(self):
        return sorted(self.rows.elements() if self.table.scheme == "append" else self.rows.values())

    def copy(self):
        twin = Content(self.table)
        twin.rows = self.rows.copy()
        return twin


def fill(run, contents):
    """Makes the tables with all their rows; `run` executes a statement."""
    for content in contents:
        run(content.table.create())
    for content in contents:
        put(run, content, content.table.keys(FIRST), 1000)
    for content in contents:
        run(f"ADMIN flush_table('{content.table.name}')")
    for at, content in enumerate(contents):
        put(run, content, content.table.keys([*SECOND, *AGAIN]), 2000)
        if content.table.scheme != "append":
            gone = content.table.keys(GONE)
            run(f"DELETE FROM {content.table.name} WHERE k IN ({', '.join(map(str, gone))})")
            content.delete(gone)
        if at % 4 != 3:
            run(f"ADMIN flush_table('{content.table.name}')")
    for content in contents:
        put(run, content, content.table.keys([*THIRD, *LAST_AGAIN]), 3000)


def put(run, content, keys, number):
    sql, rows = content.write(keys, number)
    run(sql)
    content.acknowledge(rows)


def questions(content):
    """(SQL, rows that are right): the same rows asked for in ways that take other paths through files and indexes."""
    name, rows = content.table.name, content.all()
    keys = sorted({row[0] for row in rows})
    numbers = [row[1] for row in rows]
    some = keys[:: max(1, len(keys) // 4)]
    found = [
        (f"SELECT count(*) FROM {name}", [(len(rows),)]),
        (f"SELECT max(k), min(n), max(n) FROM {name}", [(max(keys), min(numbers), max(numbers))]),
        (f"SELECT k, n, s FROM {name} WHERE n < 2000 ORDER BY k, n, s", [row for row in rows if row[1] < 2000]),
        (f"SELECT s FROM {name} ORDER BY s DESC LIMIT 3", [(row[2],) for row in sorted(rows, key=lambda row: row[2])[:-4:-1]]),
    ]
    return found + [(f"SELECT k, n, s FROM {name} WHERE k = {key} ORDER BY n", [row for row in rows if row[0] == key]) for key in some]


def slots(content):
    """(slot, SQL, rows that are right) for each partition of a table by range that keeps its partitions."""
    name = content.table.name
    for slot in range(content.table.partitions if content.table.scheme == "range" and not content.table.merges else 0):
        low, high = slot * WIDTH, (slot + 1) * WIDTH
        rows = [row for row in content.all() if low <= row[0] < high]
        yield slot, f"SELECT k, n, s FROM {name} WHERE k >= {low} AND k < {high} ORDER BY k, n, s", rows
