"""Where in a data directory a bit can flip: every file belongs to a class, and each class to what has to come of it.

    log           the segments: the checkpoint at the beginning, then head, middle, tail, and what lies behind the end;
                  spare segments; the mark of what is synced; the format
    manifest      edits and checkpoints of each partition
    parquet       pages, and the footer with its indexes, of each file
    sled          meta's applied state
    names         whose directory it is: PARTITA, NODE; whose orders it follows: CATALOG; where others are: PEERS

A place follows from a seed and from what files there are.
"""

import dataclasses
import pathlib

# Bytes of a log's record before its payload; where the length of that is.
RECORD_HEADER, RECORD_LENGTH_AT = 56, 4
# The first and the last tenth of a segment's records are its head and its tail, and no less than this.
END_SHARE, END_BYTES = 10, 512
# What is looked at of space that is not used.
UNUSED_BYTES = 4096
PIECE_BYTES = 1 << 20
ZEROS = bytes(PIECE_BYTES)
# Two places of the log are so far apart that they seldom share a record.
APART_BYTES = 256
NAMES = ("PARTITA", "NODE", "CATALOG", "PEERS")
# A Parquet file ends with the length of its footer and a magic word.
FOOTER_END_BYTES = 8
PARQUET_MAGIC_BYTES = 4
PART_OF_PARTITION = ("manifest-edit", "manifest-checkpoint", "parquet-data", "parquet-footer")
OF_LOG = ("log-checkpoint", "log-head", "log-middle", "log-tail", "log-unused", "log-spare", "log-mark", "log-format")
# What other members of a cluster have too.
WITH_COPIES = (*OF_LOG[:7], *PART_OF_PARTITION, "sled", "name-PEERS")
CLASSES = (*OF_LOG, *PART_OF_PARTITION, "sled", *(f"name-{name}" for name in NAMES))


@dataclasses.dataclass(frozen=True)
class Region:
    """Bytes of a file, from `start` until before `end`, of one class. `path` is relative to the data directory."""

    kind: str
    path: str
    start: int
    end: int

    def partition(self):
        """The partition whose file it is; None for what concerns all."""
        parts = pathlib.PurePath(self.path).parts
        return int(parts[1]) if parts[0] == "partitions" and parts[1].isdigit() else None


@dataclasses.dataclass(frozen=True)
class Place:
    """One bit, or with `width` so many bytes."""

    kind: str
    path: str
    offset: int
    bit: int
    partition: int | None = None
    width: int = 0

    def __str__(self):
        return f"{self.kind} {self.path}:{self.offset}{f'+{self.width}' if self.width else f'.{self.bit}'}"


def regions(folder):
    """All regions of a data directory, in an order that follows from the names of its files."""
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = path.relative_to(folder).as_posix()
            found += [region for region in regions_of(name, path) if region.end > region.start]
    return found


def regions_of(name, path):
    parts, size = pathlib.PurePath(name).parts, path.stat().st_size
    if name in NAMES:
        return [Region(f"name-{name}", name, 0, size)]
    if parts[0] == "log":
        return log_regions(name, path, size)
    if parts[0] == "meta":
        return [Region("sled", name, 0, size)]
    if parts[0] == "partitions" and parts[-1].endswith((".edit", ".checkpoint")):
        return [Region("manifest-" + parts[-1].rsplit(".", 1)[1], name, 0, size)]
    if parts[0] == "partitions" and path.suffix == ".parquet":
        return parquet_regions(name, path, size)
    return []


def parquet_regions(name, path, size):
    with open(path, "rb") as file:
        file.seek(max(0, size - FOOTER_END_BYTES))
        length = int.from_bytes(file.read(4), "little")
    footer = max(PARQUET_MAGIC_BYTES, size - FOOTER_END_BYTES - length)
    return [Region("parquet-data", name, 0, footer), Region("parquet-footer", name, footer, size)]


def log_regions(name, path, size):
    last = pathlib.PurePath(name).name
    if last == "SYNCED":
        return [Region("log-mark", name, 0, size)]
    if last == "LOG_FORMAT":
        return [Region("log-format", name, 0, size)]
    if last.startswith("spare-"):
        return [Region("log-spare", name, 0, UNUSED_BYTES)]
    if not last.endswith(".log"):
        return []
    with open(path, "rb") as file:
        return segment_regions(name, used_bytes(file, size), first_record_bytes(file), size)


def used_bytes(file, size):
    """How much of a segment has records. The rest, which is most of it, is zero."""
    end = size
    while end:
        start = max(0, end - PIECE_BYTES)
        file.seek(start)
        piece = file.read(end - start)
        if piece != ZEROS[: len(piece)]:
            return start + len(piece.rstrip(b"\0"))
        end = start
    return 0


def first_record_bytes(file):
    """Bytes of a segment's first record, its checkpoint."""
    file.seek(RECORD_LENGTH_AT)
    return RECORD_HEADER + int.from_bytes(file.read(4), "little")


def segment_regions(name, used, first, size):
    first = min(first, used)
    end = max(END_BYTES, (used - first) // END_SHARE)
    head = min(first + end, used)
    tail = max(head, used - end)
    cuts = ((0, first), (first, head), (head, tail), (tail, used), (used, min(size, used + UNUSED_BYTES)))
    return [Region(kind, name, *cut) for kind, cut in zip(OF_LOG, cuts)]


def pick(found, dice, count, classes=CLASSES, width=0):
    """Up to `count` places, of classes in turn: no two in files of one partition, and none close together.

    A second flip in what a first one has damaged would show nothing more.
    """
    by_kind = {}
    for region in found:
        if region.kind in classes:
            by_kind.setdefault(region.kind, []).append(region)
    kinds, places, failed = sorted(by_kind), [], 0
    dice.shuffle(kinds)
    while kinds and len(places) < count and failed < 4 * len(kinds) + count:
        region = dice.choice(by_kind[kinds[(len(places) + failed) % len(kinds)]])
        offset, bit = dice.randrange(region.start, region.end), dice.randrange(8)
        place = Place(region.kind, region.path, offset, bit, region.partition(), width)
        if any(is_near(place, other) for other in places):
            failed += 1
        else:
            places.append(place)
    return places


def is_near(one, other):
    if one.partition is not None:
        return one.partition == other.partition
    return one.path == other.path and abs(one.offset - other.offset) < APART_BYTES


def flip(folder, place):
    """Flips the bit, or changes the bytes; a second time all is as it was."""
    with open(pathlib.Path(folder) / place.path, "r+b") as file:
        file.seek(place.offset)
        before = file.read(place.width or 1)
        file.seek(place.offset)
        file.write(bytes(byte ^ (0xA5 if place.width else 1 << place.bit) for byte in before))
