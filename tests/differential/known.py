"""Constructs that random statements leave out because a difference is known, each with its reason.

A construct is a template of `forms.py`, or a feature of `queries.py` or `cases.py` by its name. Whoever mends one takes it
out of the list. The summary of each run says how many there are, and `--all` leaves nothing out.
"""

from __future__ import annotations

KNOWN: tuple[tuple[str, tuple[str, ...]], ...] = ()

HELD_BACK: dict[str, str] = {construct: reason for reason, constructs in KNOWN for construct in constructs}
