"""Flips bits of a standalone server's files, many at a time, and looks at what it answers. See tests/flips/run."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import shutil
import sys
import tempfile
import time

import places
import tables
from trial import Trial, clean, copy_of, dice_of, make_template

# Flips in one start, by what is flipped: a second one where all depends on the first would show nothing. Of the log a bit can be
# put back and more than that cannot, so that most partitions may be damaged by few of the latter.
BURST = 16
MIXES = (
    (places.PART_OF_PARTITION, 14),
    (("log-head", "log-middle", "log-tail"), 8),
    (("log-checkpoint", "log-unused", "log-spare", "log-mark"), 3),
    (("sled",), 1),
    ((*places.PART_OF_PARTITION, "log-head", "log-middle", "log-tail", "log-mark"), 12),
    (("log-format", "name-PARTITA", "name-NODE"), 1),
    (("log-head", "log-middle", "log-tail"), 2, BURST),
    (("log-checkpoint", "log-unused", "log-spare", "log-mark", "sled"), 1, BURST),
)
# A mix is drawn so often.
WEIGHTS = (5, 6, 3, 3, 4, 1, 3, 2)
# In a minute or two.
CI_FLIPS = 80


def arguments():
    parser = argparse.ArgumentParser(prog="tests/flips/run")
    parser.add_argument("--flips", type=int, default=2000, help="bits to flip, at least (2000)")
    parser.add_argument("--seed", type=int, default=1, help="decides which (1)")
    parser.add_argument("--only", type=int, default=None, metavar="TRIAL", help="this one of the seed, and no other")
    parser.add_argument("--classes", default="", help=f"of these classes only, with commas: {', '.join(places.CLASSES)}")
    parser.add_argument("--ci", action="store_true", help=f"{CI_FLIPS} flips")
    parser.add_argument("--jobs", type=int, default=2, help="servers at once (2)")
    parser.add_argument("--work", type=pathlib.Path, default=None, help="where data goes (memory, where there is some)")
    parser.add_argument("--no-merges", action="store_true", help="without a table whose partitions are merged meanwhile")
    parser.add_argument("--keep", type=pathlib.Path, default=None, metavar="DIR", help="directories of trials that failed")
    parser.add_argument("--out", type=pathlib.Path, default=None, help="every trial as a line of JSON")
    options = parser.parse_args()
    if options.ci:
        options.flips = CI_FLIPS
    return options


def plan(seed, number, found, only=()):
    """The places of one trial: a pure function of the seed, the trial's number and the regions that there are."""
    dice = dice_of(seed, number, "places")
    if only:
        return places.pick(found, dice, 8, only)
    classes, count, *width = dice.choices(MIXES, WEIGHTS)[0]
    return places.pick(found, dice, count, classes, *width)


class Run:
    """All trials of a seed."""

    def __init__(self, options, binary, work):
        self.options, self.binary, self.work = options, binary, work
        self.only = tuple(filter(None, options.classes.split(",")))
        self.templates, self.regions = [], []
        # Folders that no other trial uses now.
        self.folders = queue.SimpleQueue()
        for job in range(options.jobs):
            self.folders.put(work / f"trial-{job}")
        self.counts = collections.Counter()
        self.faults = []

    def make_templates(self):
        for verb in ("kill", "stop"):
            chosen = tables.tables(merging=0 if self.options.no_merges else 1)
            template = make_template(self.binary, self.work / f"template-{verb}", chosen, verb)
            self.templates.append(template)
            self.regions.append(places.regions(template.folder))

    def trial(self, number, damage=None):
        """Runs a trial, or the same with some of its places only."""
        at = number % len(self.templates)
        damage = plan(self.options.seed, number, self.regions[at], self.only) if damage is None else damage
        work = self.folders.get()
        try:
            clean(work)
            dice = dice_of(self.options.seed, number, "course")
            outcome = Trial(self.templates[at], self.binary, work, damage, dice).run()
            if outcome.faults and self.options.keep:
                kept = self.options.keep / f"{number}-{len(damage)}-{damage[0].kind}"
                clean(kept)
                kept.parent.mkdir(parents=True, exist_ok=True)
                copy_of(work, kept)
            return outcome
        finally:
            clean(work)
            self.folders.put(work)

    def one(self, number):
        outcome = self.trial(number)
        found = [(outcome.places, fault) for fault in outcome.faults]
        if found and len(outcome.places) > 1:
            alone = [self.trial(number, [place]) for place in outcome.places]
            found = [(one.places, fault) for one in alone for fault in one.faults] or found
        return number, outcome, found

    def note(self, number, outcome, found):
        words = outcome.words or ["fault"] * len(outcome.places)
        culprits = {place for places_of_fault, _ in found for place in places_of_fault}
        for place, word in zip(outcome.places, words):
            self.counts[kind_of(place), "fault" if place in culprits else word] += 1
        for damage, fault in found:
            said = "; ".join(map(str, damage))
            self.faults.append((number, said, fault))
            print(f"FAULT trial {number} [{said}]: {fault[:1500]}", flush=True)
        if self.options.out:
            with open(self.options.out, "a") as file:
                entry = {"trial": number, "places": [dataclasses.asdict(place) for place in outcome.places]}
                file.write(json.dumps({**entry, "words": words, "faults": [fault for _, fault in found]}) + "\n")

    def run(self):
        if self.options.only is not None:
            self.note(*self.one(self.options.only))
            return
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            number, waiting = 0, set()
            while sum(self.counts.values()) < self.options.flips:
                while len(waiting) < self.options.jobs:
                    waiting.add(pool.submit(self.one, number))
                    number += 1
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                for one in done:
                    self.note(*one.result())

    def report(self, seconds):
        words = sorted({word for _, word in self.counts})
        print(f"\n{'class':24} " + " ".join(f"{word:>8}" for word in words))
        for kind in sorted({kind for kind, _ in self.counts}):
            if any(self.counts[kind, word] for word in words):
                print(f"{kind:24} " + " ".join(f"{self.counts[kind, word]:8}" for word in words))
        print(f"{sum(self.counts.values())} flips of seed {self.options.seed} in {seconds:.0f} s, {len(self.faults)} faults")


def kind_of(place):
    return f"{place.kind} +{place.width}" if place.width else place.kind


def main():
    options = arguments()
    binary = os.environ.get("PARTITA_BIN", "")
    if not pathlib.Path(binary).is_file():
        sys.exit(f"'{binary}' is not there; say with PARTITA_BIN where the binary is")
    memory = pathlib.Path("/dev/shm")
    parent = options.work or (memory if os.access(memory, os.W_OK) else None)
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-flips-", dir=parent))
    began = time.monotonic()
    run = Run(options, binary, work)
    try:
        run.make_templates()
        run.run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    run.report(time.monotonic() - began)
    for number in sorted({number for number, _, _ in run.faults})[:5]:
        print(f"again: tests/flips/run --seed {options.seed} --only {number}")
    sys.exit(1 if run.faults else 0)


if __name__ == "__main__":
    main()
