"""One trial: a copy of a data directory with some bits flipped, a server on it, and what it answers.

Whatever was damaged: a row that is answered is right, an error is one of the partition that was damaged, which health
names, everything else is read and written, and what is written then is there after another start.
"""

import contextlib
import dataclasses
import pathlib
import random
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import places
import psycopg
import tables
from chaos import lower_bound
from cluster import Broken, Member, Standalone

# Errors that say that something is damaged, or that the disk says so.
DAMAGED = ("XX001", "58030")
ANSWER_S = 60
# How errors name the partition: by its number, or by its folder.
NAMED_PARTITION = re.compile(r"(?:partition|group) (\d+)|(?:^|\s)(\d+)/(?:files|manifest)/")
FIRST_TIME = "after the damage"
# So many of the tables that nothing was done to are looked at closely all the same.
SAMPLE = 0.1
# What says whose the directory is, and of which format. What is no partition's must not be guessed, so the start may end.
MAY_REFUSE = ("name-PARTITA", "name-NODE", "log-format")
RIGHT, NAMED, REFUSED = "right", "named", "refused"


class Wrong(Exception):
    """What must not be."""


@dataclasses.dataclass
class Outcome:
    """What came of a trial: a word for each place, and what was wrong, a line each."""

    places: list
    words: list
    faults: list


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def copy_of(source, target):
    """A copy that takes no room for what is zero."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


class Server(Standalone):
    """A process with every role on one data directory, and a client of it."""

    def __init__(self, binary, work, more=()):
        super().__init__(binary, work, 0, {"server": list(more)})
        # No firewall here, so no groups of its own either.
        self.verbs -= {"cut", "join"}
        self.member = self.members[0]
        self.folder = self.data(self.member)
        self.connection = None

    def make_members(self):
        return [Member("server", "server", f"127.0.0.1:{free_port()}", ("127.0.0.1", free_port()))]

    def begin(self):
        self.launch(self.member)
        self.wait_ready(self.member)

    def end(self, verb="kill"):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self.member.name in self.running:
            getattr(self, verb)(self.member)

    def rows(self, sql):
        if self.connection is None or self.connection.closed:
            host, port = self.member.sql
            self.connection = psycopg.connect(
                host=host, port=port, user="partita", dbname="public", autocommit=True, connect_timeout=ANSWER_S,
                options=f"-c statement_timeout={ANSWER_S * 1000}",
            )  # fmt: skip
        cursor = self.connection.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def health(self):
        try:
            return urllib.request.urlopen(f"http://{self.member.address}/health", timeout=ANSWER_S).read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def partitions(self):
        """(table, slot) -> partition, of tables by range; and the partitions of every table."""
        rows = self.rows('SELECT "table", partition, start_key FROM sys.partitions')
        found, of_table = {}, {}
        for name in sorted({row[0] for row in rows}):
            own = sorted((row for row in rows if row[0] == name), key=lambda row: lower_bound(row[2]))
            of_table[name] = {row[1] for row in own}
            found.update({(name, slot): row[1] for slot, row in enumerate(own)})
        return found, of_table


@dataclasses.dataclass
class Template:
    """A data directory of a server that was ended, and what is in it."""

    folder: pathlib.Path
    contents: list
    partitions: dict
    of_table: dict


def make_template(binary, folder, all_tables, verb, more=()):
    """Fills a server and ends it: killed, rows are in the log only; stopped, they are in files."""
    server = Server(binary, folder, more)
    contents = [tables.Content(table) for table in all_tables]
    try:
        server.begin()
        tables.fill(server.rows, contents)
        partitions, of_table = server.partitions()
        server.end(verb)
    finally:
        server.destroy()
    return Template(server.folder, contents, partitions, of_table)


class Trial:
    """A server on a damaged copy. `dice` decides what is not part of the damage: how the server ends in between."""

    def __init__(self, template, binary, work, damage, dice):
        self.template, self.damage, self.dice = template, damage, dice
        self.server = Server(binary, work)
        self.contents = [content.copy() for content in template.contents]
        self.faults = []
        # Partitions that answered with an error.
        self.failed = set()
        # Partitions whose files are damaged, and whether the log, which all share, is.
        self.damaged = {place.partition for place in damage} - {None}
        self.shared = any(place.partition is None for place in damage)

    def run(self):
        """Does everything; what went wrong is in `faults`."""
        self.server.folder.parent.mkdir(parents=True)
        copy_of(self.template.folder, self.server.folder)
        for place in self.damage:
            places.flip(self.server.folder, place)
        try:
            words = self.examine()
        except (psycopg.Error, OSError) as error:
            words = []
            self.faults.append(f"it does not serve: {first_line(error)}; {self.server.log_tail(self.server.member, 5)}")
        finally:
            with contextlib.suppress(Broken):
                self.server.end()
            self.server.destroy()
        return Outcome(self.damage, words, self.faults)

    def examine(self):
        try:
            self.server.begin()
        except Broken as broken:
            return self.refused(str(broken))
        self.read(FIRST_TIME)
        self.write()
        self.check_health()
        try:
            self.server.end(self.dice.choice(["kill", "stop"]))
            self.server.begin()
        except Broken as broken:
            self.faults.append(f"it does not start a second time: {broken}")
            return []
        self.read("after another start")
        return [self.word(place) for place in self.damage]

    def word(self, place):
        return NAMED if place.partition in self.failed or (place.partition is None and self.failed - self.damaged) else RIGHT

    def refused(self, text):
        """It did not start, and said why."""
        named = [place for place in self.damage if pathlib.PurePath(place.path).name in text or place.path.split("/")[0] in text]
        if not all(may_refuse(place) for place in self.damage):
            self.faults.append(f"it does not start: {text}")
        if not named:
            self.faults.append(f"it does not say what is damaged: {text}")
        return [REFUSED for _ in self.damage]

    def read(self, when):
        for content in self.contents:
            try:
                self.read_table(content, when)
            except Wrong as wrong:
                self.faults.append(f"{when}: {wrong}")

    def read_table(self, content, when):
        """Reads all rows of a table; where its files are damaged in several ways, and by parts where that fails."""
        name = content.table.name
        whole = self.ask(f"SELECT k, n, s FROM {name} ORDER BY k, n, s", content.all())
        damaged = self.template.of_table[name] & self.damaged
        if when == FIRST_TIME and (damaged or self.dice.random() < SAMPLE):
            for sql, rows in tables.questions(content):
                self.ask(sql, rows)
        if not whole:
            for slot, sql, rows in tables.slots(content):
                read = self.ask(sql, rows)
                partition = self.template.partitions[name, slot]
                if not read and partition not in self.failed:
                    raise Wrong(f"partition {partition} of {name} is not read, and the error names another")

    def ask(self, sql, rows):
        """Whether it was answered; with other rows than `rows` it must not be, and an error names what is damaged."""
        try:
            answer = self.server.rows(sql)
        except psycopg.Error as error:
            self.note_error(sql, error)
            return False
        if answer != rows:
            wrong = f"{len(answer)} rows, not {len(rows)}; missing {difference(rows, answer)}, strange {difference(answer, rows)}"
            raise Wrong(f"SILENT {sql[:160]}: {wrong}")
        return True

    def heirs(self):
        """Partitions that may have taken over, before anybody read them, files of a damaged one: those of a table that is merged."""
        merged = [content.table.name for content in self.contents if content.table.merges]
        groups = [self.template.of_table[name] for name in merged]
        return set().union(*(group for group in groups if group & self.damaged))

    def note_error(self, sql, error):
        """An error must be one of damage, and of a partition that may be damaged."""
        named = {int(number) for found in NAMED_PARTITION.findall(str(error)) for number in found if number}
        if error.sqlstate not in DAMAGED or not named:
            raise Wrong(f"{sql[:160]}: {error.sqlstate} {first_line(error)}") from error
        if not self.shared and not named <= self.damaged | self.heirs():
            raise Wrong(f"{sql[:160]}: not damaged: {first_line(error)}") from error
        self.failed |= named

    def check_health(self):
        health = self.server.health()
        for partition in sorted(self.failed):
            if f"partition {partition}" not in health:
                self.faults.append(f"health does not name partition {partition}: {health[:300]}")

    def write(self):
        for content in self.contents:
            for key in content.table.keys([tables.AFTER]):
                sql, rows = content.write([key], 4000)
                try:
                    self.server.rows(sql)
                    content.acknowledge(rows)
                except psycopg.Error as error:
                    self.refused_write(sql, error)

    def refused_write(self, sql, error):
        """As reads, writes fail for damaged partitions only."""
        try:
            self.note_error(sql, error)
        except Wrong as wrong:
            self.faults.append(f"writing: {wrong}")


def may_refuse(place):
    """Whether a start may end over it. More than a bit of the log cannot be put back, and may have been the catalog's."""
    return place.kind in MAY_REFUSE or (place.width > 0 and place.kind in (*places.OF_LOG, "sled"))


def difference(one, other):
    """Rows of one list that the other lacks, the first few."""
    rest = list(other)
    found = []
    for row in one:
        if row in rest:
            rest.remove(row)
        else:
            found.append(row)
    return found[:3]


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def clean(work):
    shutil.rmtree(work, ignore_errors=True)


def dice_of(seed, number, what):
    return random.Random(f"{seed} {number} {what}")
