"""What is broken, in which order: a pure function of a seed, so that a run can be repeated.

A fault is done to members of a role and undone after a hold. Which member it is depends on who leads what at that
moment: the draw is part of the schedule, the choice is made when the time comes.
"""

import dataclasses
import random


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to break something. `verb` and `undo` are methods of a cluster."""

    name: str
    role: str
    verb: str
    undo: str
    # Seconds for which it stays broken, at least and at most.
    hold: tuple
    # How many members; 0: all of the role.
    members: int = 1
    # Whether writes can go on while it lasts, three replicas given.
    survivable: bool = True
    text: str = ""
    # What is done to its files while it is down: a method of a cluster, which takes the member and a draw.
    harm: str = ""
    # For `disturb`: calls that fail, as tests/it/faults.c reads them.
    orders: tuple = ()


SHORT, LONG, NONE = (2.0, 5.0), (8.0, 14.0), (0.0, 0.1)

# What calls of the C library fail with, and for which files.
EIO, EMFILE, ENOSPC = 5, 24, 28
DISTURBANCES = (
    ("eio-sync", (f"fdatasync {EIO} /log/", f"fsync {EIO} /log/"), "syncs of its log fail"),
    ("eio-write", (f"pwrite {EIO} /log/", f"write {EIO} /log/"), "writes of its log fail"),
    (
        "eio-files",
        (f"fsync {EIO} /data/partitions/", f"write {EIO} /data/meta/", f"pwrite {EIO} /data/meta/"),
        "writes of its files fail",
    ),
    ("eio-read", (f"read {EIO} .parquet", f"pread {EIO} .parquet", f"pread {EIO} /data/meta/"), "reads of its files fail"),
    ("emfile", (f"open {EMFILE} /data/",), "it can open no file"),
    (
        "enospc",
        (f"write {ENOSPC} /data/", f"pwrite {ENOSPC} /data/", f"fsync {ENOSPC} /data/partitions/"),
        "there is no space for a byte",
    ),
)

KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill-datanode", "datanode", "kill", "start", LONG, text="kill -9, away for a while"),
        Kind("bounce-datanode", "datanode", "kill", "start", NONE, text="kill -9, started again at once"),
        Kind("stop-datanode", "datanode", "stop", "start", SHORT, text="SIGTERM, started again"),
        Kind("pause-datanode", "datanode", "pause", "resume", LONG, text="stands still, its sockets stay open"),
        Kind("cut-datanode", "datanode", "cut", "join", LONG, text="the network takes nothing from or to it"),
        Kind("kill-meta", "meta", "kill", "start", LONG, text="kill -9, away for a while"),
        Kind("pause-meta", "meta", "pause", "resume", LONG, text="stands still"),
        Kind("cut-meta", "meta", "cut", "join", LONG, text="the network takes nothing from or to it"),
        Kind("kill-metas", "meta", "kill", "start", SHORT, 0, text="all meta nodes: rows need none of them"),
        Kind("kill-frontend", "frontend", "kill", "start", SHORT, text="kill -9; clients use the other"),
        Kind("pause-frontend", "frontend", "pause", "resume", SHORT, text="stands still with requests in it"),
        Kind("kill-majority", "datanode", "kill", "start", SHORT, 2, False, "two datanodes of three"),
        Kind("restart-all", "*", "kill", "start", NONE, 0, False, "kill -9 of everything, started again"),
        Kind("full-disk", "datanode", "fill", "empty", LONG, text="the disk takes not a byte more"),
        Kind("corrupt-file", "datanode", "kill", "start", NONE, text="bytes of a file change while it is down", harm="corrupt"),
        Kind("flip-datanode", "datanode", "kill", "start", NONE, text="bits of its files flip while it is down", harm="flip"),
        Kind("flip-meta", "meta", "kill", "start", NONE, text="bits of its files flip while it is down", harm="flip"),
        Kind("wipe-datanode", "datanode", "kill", "start", NONE, text="comes back with an empty directory", harm="wipe"),
        Kind("wipe-meta", "meta", "kill", "rejoin", NONE, text="comes back with an empty directory, and rejoins", harm="wipe"),
        Kind("older-datanode", "datanode", "keep", "put_back", SHORT, text="comes back with an older copy of its directory"),
        Kind("older-meta", "meta", "keep", "put_back", SHORT, text="comes back with an older copy of its directory"),
        *(
            Kind(f"{name}-{role}", role, "disturb", "relent", SHORT, text=text, orders=orders)
            for name, orders, text in DISTURBANCES
            for role in ("datanode", "meta")
        ),
        Kind("rolling-restart", "*", "roll", "roll", NONE, 0, text="deploy/rolling-restart.sh"),
        # A process with every role.
        Kind("bounce", "server", "kill", "start", NONE, 1, False, "kill -9, started again at once"),
        Kind("stop", "server", "stop", "start", NONE, 1, False, "SIGTERM, started again"),
        Kind("pause", "server", "pause", "resume", SHORT, 1, False, "stands still"),
        Kind("full", "server", "fill", "empty", SHORT, 1, False, "the disk takes not a byte more"),
    )
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One entry of the schedule. `draw` is in [0, 1) and chooses members and, where there are any, files."""

    number: int
    kind: Kind
    draw: float
    hold: float


def possible(names, roles, verbs):
    """The kinds of `names` (all, when there are none) that a cluster of these roles and verbs can have."""
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise ValueError(f"no fault is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    fits = [
        kind
        for kind in KINDS.values()
        if (kind.role in roles or (kind.role == "*" and "datanode" in roles))
        and {kind.verb, kind.undo} <= verbs
        and (not kind.harm or kind.harm in verbs)
    ]
    chosen = [kind for kind in fits if not names or kind.name in names]
    missing = [name for name in names if name not in {kind.name for kind in chosen}]
    if missing:
        raise ValueError(f"cannot be done here: {', '.join(missing)}")
    return chosen


def schedule(seed, kinds, rounds):
    """Every kind once a round, in an order that the seed gives."""
    dice = random.Random(seed)
    faults = []
    for _ in range(rounds):
        order = list(kinds)
        dice.shuffle(order)
        for kind in order:
            faults.append(Fault(len(faults) + 1, kind, dice.random(), round(dice.uniform(*kind.hold), 2)))
    return faults


def choose(fault, members, led):
    """The members that a fault is done to. `led` says how many partitions of the measured table each one leads.

    Seven times of ten the one that leads most: a fault of a node that leads nothing shows little.
    """
    of_role = [member for member in members if fault.kind.role in ("*", member.role)]
    if fault.kind.members == 0:
        return of_role
    dice = random.Random(fault.draw)
    order = sorted(of_role, key=lambda member: member.name)
    dice.shuffle(order)
    if dice.random() < 0.7:
        order.sort(key=lambda member: -led.get(member.name, 0))
    return order[: fault.kind.members]
