"""Text and Markdown of what was measured."""

import math
import sys


def progress(text):
    print(text, file=sys.stderr, flush=True)


def number(value):
    """A figure with three digits that count."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}" if places else f"{round(value):,}"


def head(title):
    return f"\n{title}\n{'':<42} {'without':>12} {'with':>12} {'ratio':>8}   goal"


def line(name, without, with_indexes, ratio=None, goal=None):
    """A line of a table. `goal`: its bound, and True if the ratio must not be smaller than it.

    The ratio is that of with to without, unless it is given.
    """
    if ratio is None:
        ratio = with_indexes / without if without else math.nan
    text = f"{name:<42} {number(without):>12} {number(with_indexes):>12} {number(ratio):>8}"
    if goal is None:
        return text
    bound, at_least = goal
    holds = ratio >= bound if at_least else ratio <= bound
    words = "at least" if at_least else "at most"
    return f"{text}   {words} {number(bound)}: {'ok' if holds else 'MISSED'}"


def markdown(heads, lines):
    """A table whose cells are texts or numbers."""
    cells = [[text if isinstance(text, str) else number(text) for text in row] for row in lines]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1), *cells]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def beside(subjects, asked):
    """Two tables: all figures, and ratios of latencies.

    `subjects`: lists of dictionaries with engine, title, load_s, settle_s, bytes and questions, by engine; the first one of
    an engine has no index. `asked`: the questions that all answered.
    """
    everyone = [subject for some in subjects.values() for subject in some]

    def latency(subject, question):
        return subject["questions"][question.name]["ms"]

    figures = [
        ["load, s", *[subject["load_s"] for subject in everyone]],
        ["flush and merge, s", *[subject["settle_s"] for subject in everyone]],
        ["disk, MB", *[subject["bytes"] / 1e6 for subject in everyone]],
        *[[f"{question.title}, ms", *[latency(subject, question) for subject in everyone]] for question in asked],
    ]
    text = markdown(["", *[subject["title"] for subject in everyone]], figures)
    fastest = {engine: {question.name: min(latency(subject, question) for subject in some) for question in asked}
               for engine, some in subjects.items()}
    heads, ratios = [""], [[question.title] for question in asked]
    for engine, some in subjects.items():
        heads.append(f"{engine}: without / with")
        for row, question in zip(ratios, asked):
            row.append(latency(some[0], question) / min(latency(subject, question) for subject in some[1:]))
    mine, *others = subjects
    for engine in others:
        heads.append(f"{engine} / {mine}, the fastest of each")
        for row, question in zip(ratios, asked):
            row.append(fastest[engine][question.name] / fastest[mine][question.name])
    return f"{text}\n\n{markdown(heads, ratios)}"
