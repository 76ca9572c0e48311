"""Constructs that random statements leave out because a difference is known, each with its reason.

A construct is a template of `forms.py`, or a feature of `queries.py` or `cases.py` by its name. Whoever mends one takes it
out of the list. The summary of each run says how many there are, and `--all` leaves nothing out.
"""

from __future__ import annotations

KNOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("beside a function a number with a point is a double", ("({dec} % NULLIF({dec}, 0))", "mod({dec}, {Digit1})")),
    ("ORDER BY and DISTINCT ON put -0 before 0", ("-0",)),
)  # fmt: skip

HELD_BACK: dict[str, str] = {construct: reason for reason, constructs in KNOWN for construct in constructs}
