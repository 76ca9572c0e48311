"""The values that are measured, and the requests that write them: made from their numbers alone, before they are sent.

```text
  hosts and steps ─┬─ MutateRows: a row for each host and day, a cell for each reading     (pattern 2)
                   └─ line protocol: a row for each reading
  balloons and minutes ─┬─ MutateRows: a row for each balloon, 4 x 10,080 cells for a week (pattern 2)
                        └─ line protocol: a row for each minute, of 4 fields
  sets of 100 values ── MutateRows: one row of 100 cells, or 100 rows of one
```

A request has the same values in the same order in either form.
"""

import datetime
import functools
import random

FAMILY = "m"
QUALIFIER = b"pressure"
# 2021-03-01, in seconds since 1970: a Monday.
FIRST_S = 1_614_556_800
STEP_S = 10
DAY_S = 86_400
MINUTES = 10_080
METRICS = ("pressure", "temperature", "humidity", "altitude")
LOCATIONS = ("us-west2", "asia-south2", "europe-north1", "us-east1", "me-central1")
FIRST_ID = 3_698
SET = 100


def requests_of(hosts, steps, values):
    """Hosts and ranges of steps of requests with about so many values each."""
    if not hosts:
        return
    height = max(1, values // len(hosts))
    for first in range(0, steps, height):
        yield hosts, range(first, min(first + height, steps))


def share(hosts, process, processes):
    """Numbers of the hosts that a process writes."""
    return range(process, hosts, processes)


def reading(host, step):
    """A pressure from 94,122 to 96,025."""
    # Multiplications scatter neighbours.
    number = (host * 1_000_003 + step) * 2_654_435_761 % 2**32
    number = (number ^ number >> 15) * 2_246_822_519 % 2**32
    return 94_122 + (number >> 8) % 1_904


def time_s(step):
    return FIRST_S + step * STEP_S


def day(step):
    return day_name(time_s(step) // DAY_S)


@functools.cache
def day_name(number):
    """The date of a day since 1970."""
    return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=number))


def readings_rows(hosts, steps):
    """Rows of a wide table, each a key and its cells: (qualifier, microseconds, value)."""
    for host in hosts:
        by_day = {}
        for step in steps:
            cell = (QUALIFIER, time_s(step) * 1_000_000, str(reading(host, step)).encode())
            by_day.setdefault(day(step), []).append(cell)
        for name, cells in by_day.items():
            yield f"host_{host:04}#{name}".encode(), cells


def readings_lines(table, hosts, steps):
    """Line protocol of the same readings, with times in milliseconds."""
    return "\n".join(f"{table},host=host_{host:04} pressure={reading(host, step)}i {time_s(step) * 1_000}"
                     for host in hosts for step in steps).encode()


def balloon_key(balloon):
    return f"{LOCATIONS[balloon % len(LOCATIONS)]}#{FIRST_ID + balloon}"


def events(balloon, minutes=MINUTES):
    """The measurements of a balloon, minute by minute, as texts in the order of METRICS: a walk."""
    dice = random.Random(balloon)
    pressure, tenths, humidity, altitude = 95_000, 96, 60, 610
    made = []
    for _ in range(minutes):
        pressure = min(96_025, max(94_122, pressure + dice.randint(-40, 40)))
        tenths = min(150, max(10, tenths + dice.randint(-1, 1)))
        humidity = min(90, max(30, humidity + dice.randint(-1, 1)))
        altitude = min(900, max(400, altitude + dice.randint(-5, 5)))
        made.append((str(pressure), f"{tenths // 10}.{tenths % 10}", str(humidity), str(altitude)))
    return made


def minute_s(minute):
    return FIRST_S + minute * 60


def balloon_cells(measured, first):
    """Cells of some events of a balloon, of which the first has this minute."""
    return [(metric.encode(), minute_s(minute) * 1_000_000, value.encode())
            for minute, values in enumerate(measured, first) for metric, value in zip(METRICS, values)]


def balloon_lines(table, balloon, measured, first):
    lines = []
    for minute, (pressure, temperature, humidity, altitude) in enumerate(measured, first):
        fields = f"pressure={pressure}i,temperature={temperature},humidity={humidity}i,altitude={altitude}i"
        lines.append(f"{table},balloon={balloon_key(balloon)} {fields} {minute_s(minute) * 1_000}")
    return "\n".join(lines).encode()


def set_rows(number, is_one_row):
    """A set of 100 values: one row of 100 cells, or 100 rows of one cell."""
    cells = [(QUALIFIER, time_s(step) * 1_000_000, str(reading(number, step)).encode()) for step in range(SET)]
    if is_one_row:
        return [(f"one#{number:08}".encode(), cells)]
    return [(f"many#{number:08}#{step:03}".encode(), [cell]) for step, cell in enumerate(cells)]
