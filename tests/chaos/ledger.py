"""What clients tried, what was acknowledged, and whether what is read agrees with it. Knows no server.

A statement that returned has taken effect. One that failed or whose connection was lost may have taken effect or
may do so later: its rows are open. A key with an open write is never written again, so that what it may hold
stays known: the last acknowledged value or the open one.
"""

import bisect
import collections
import dataclasses

# More lines of one trouble help nobody.
SHOWN = 10


@dataclasses.dataclass
class Key:
    """One key of the keyed table: the last acknowledged number and the one whose fate is not known."""

    acked: int | None = None
    open: int | None = None

    def may_hold(self):
        return {n for n in (self.acked, self.open) if n is not None}


class Keyed:
    """The table whose rows replace each other: (slot, id) -> n, where n grows with every write of a key."""

    def __init__(self):
        self.keys = collections.defaultdict(dict)
        self.certain = collections.defaultdict(list)

    def begin(self, slot, key, n):
        state = self.keys[slot].setdefault(key, Key())
        assert state.open is None, "a key with an open write is left alone"
        state.open = n

    def acknowledge(self, slot, key):
        state = self.keys[slot][key]
        if state.acked is None:
            self.certain[slot].append(key)
        state.acked, state.open = state.open, None

    def never_sent(self, slot, key):
        """The write did not leave the client: it is as if it had not been."""
        state = self.keys[slot][key]
        state.open = None
        if state.acked is None:
            del self.keys[slot][key]

    def settled(self, slot, key):
        state = self.keys[slot].get(key)
        return state is not None and state.open is None

    def bounds(self, slot):
        """How many rows a slot has at least, and at most."""
        return len(self.certain[slot]), len(self.keys[slot])

    def acknowledged(self):
        return sum(len(keys) for keys in self.certain.values())

    def compare(self, rows):
        """What is wrong with these rows (slot, id, n), if they are all that the table has."""
        wrong, seen = Troubles(), set()
        for slot, key, n in rows:
            state = self.keys.get(slot, {}).get(key)
            if state is None:
                wrong.add("stranger", f"({slot}, {key}) = {n} was never written")
            elif (slot, key) in seen:
                wrong.add("doubled", f"({slot}, {key}) is there again, = {n}")
            elif n not in state.may_hold():
                wrong.add("wrong value", f"({slot}, {key}) = {n}, not one of {sorted(state.may_hold())}")
            seen.add((slot, key))
        for slot, keys in self.certain.items():
            for key in keys:
                if (slot, key) not in seen:
                    wrong.add("lost", f"({slot}, {key}) = {self.keys[slot][key].acked} was acknowledged")
        return wrong.lines("keyed")


class Appended:
    """The table that keeps every row: (writer, seq), each written once."""

    def __init__(self):
        self.acked = set()
        self.open = set()
        self.tried = 0

    def begin(self, rows):
        self.open.update(rows)
        self.tried += len(rows)

    def acknowledge(self, rows):
        self.open.difference_update(rows)
        self.acked.update(rows)

    def never_sent(self, rows):
        self.open.difference_update(rows)
        self.tried -= len(rows)

    def acknowledged(self):
        return len(self.acked)

    def compare(self, rows):
        """What is wrong with these rows (writer, seq), if they are all that the table has."""
        wrong, seen = Troubles(), collections.Counter(rows)
        for row, count in seen.items():
            if count > 1:
                wrong.add("doubled", f"{row} is there {count} times")
            if row not in self.acked and row not in self.open:
                wrong.add("stranger", f"{row} was never written")
        for row in self.acked:
            if row not in seen:
                wrong.add("lost", f"{row} was acknowledged")
        return wrong.lines("append")


class Tables:
    """Tables that are created and dropped meanwhile; each name is used once."""

    def __init__(self):
        self.there, self.open, self.gone = set(), set(), set()

    def begin(self, name):
        self.there.discard(name)
        self.open.add(name)

    def created(self, name):
        self.open.discard(name)
        self.there.add(name)

    def dropped(self, name):
        self.open.discard(name)
        self.gone.add(name)

    def compare(self, names):
        """What is wrong with these names, if they are all that the catalog has."""
        wrong = Troubles()
        for name in sorted(self.there - set(names)):
            wrong.add("lost", f"{name} was created")
        for name in names:
            if name in self.gone:
                wrong.add("back", f"{name} was dropped")
            elif name not in self.there and name not in self.open:
                wrong.add("strange", f"{name} was never created")
        return wrong.lines("tables")


class Troubles:
    """Findings by kind: how many, and the first few."""

    def __init__(self):
        self.found = collections.defaultdict(list)

    def add(self, kind, text):
        self.found[kind].append(text)

    def lines(self, table):
        return [
            f"{table}: {len(texts)} {kind}: {'; '.join(texts[:SHOWN])}" for kind, texts in sorted(self.found.items())
        ]


class Timeline:
    """The writes of one partition, in order: when each began and ended and whether it was acknowledged."""

    def __init__(self):
        self.began, self.ended, self.ok = [], [], []

    def add(self, began, ended, ok):
        self.began.append(began)
        self.ended.append(ended)
        self.ok.append(ok)

    def first_success(self, since):
        """When the first write that began at or after `since` was acknowledged."""
        for at in range(bisect.bisect_left(self.began, since), len(self.began)):
            if self.ok[at]:
                return self.ended[at]
        return None

    def longest_gap(self, since, until):
        """The longest time within [since, until] in which nothing was acknowledged."""
        first, last = bisect.bisect_left(self.ended, since), bisect.bisect_right(self.ended, until)
        ends = [end for end, ok in zip(self.ended[first:last], self.ok[first:last]) if ok]
        moments = [since, *ends, until]
        return max(after - before for before, after in zip(moments, moments[1:]))

    def failures(self, since, until):
        first, last = bisect.bisect_left(self.ended, since), bisect.bisect_right(self.ended, until)
        return self.ok[first:last].count(False)

    def latencies(self):
        return sorted(end - begin for begin, end, ok in zip(self.began, self.ended, self.ok) if ok)
