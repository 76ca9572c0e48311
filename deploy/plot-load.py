#!/usr/bin/env python3
"""Draws how a load went, as `deploy/bench-node.sh` wrote it down: rows a second and memory by rows loaded.

    pip install matplotlib
    deploy/plot-load.py bench-node.jsonl bench-node.png

A point is what happened since the point before it, so that a slowdown is seen where it begins.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)


def points(path):
    with open(path, encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    # The last line is the result of the whole load, which has other fields.
    return [point for point in found if "server_memory_bytes" in point]


def main(source, target):
    found = points(source)
    if len(found) < 2:
        sys.exit(f"{source} has {len(found)} points: was the load run with --report-every?")
    rows = [point["rows"] / 1e6 for point in found]
    steps = list(zip([{"rows": 0, "seconds": 0.0, "server_cpu_s": 0.0}] + found, found))
    rate = [(b["rows"] - a["rows"]) / (b["seconds"] - a["seconds"]) / 1e3 for a, b in steps]
    per_cpu = [(b["rows"] - a["rows"]) / (b["server_cpu_s"] - a["server_cpu_s"]) / 1e3 for a, b in steps]
    memory = [point["server_memory_bytes"] / 2**20 for point in found]

    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(8, 6))
    above.plot(rows, rate, label="rows/s")
    above.plot(rows, per_cpu, label="rows per CPU-second of the server", linestyle="--")
    above.set_ylabel("thousands")
    above.set_ylim(bottom=0)
    above.legend()
    below.plot(rows, memory, color="tab:green")
    below.set_ylabel("resident memory, MiB")
    below.set_ylim(bottom=0)
    below.set_xlabel("million rows loaded")
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
