"""Makes what is at fault smaller, by halving."""

import time

import mutate


def parts_of(data):
    """Bytes as parts that may be left out: tokens where they are text, else single bytes."""
    try:
        return [token.encode() for token in mutate.tokens_of(data.decode())]
    except UnicodeDecodeError:
        return [data[place : place + 1] for place in range(len(data))]


def shrink(parts, still, tries, seconds, clock=time.monotonic):
    """The fewest parts found for which `still` holds: leaves out halves, then quarters, and so on.

    Ends after so many tries or seconds.
    """
    until = clock() + seconds
    size = len(parts) // 2
    while size >= 1:
        place = 0
        while place < len(parts):
            if tries <= 0 or clock() > until:
                return parts
            fewer = parts[:place] + parts[place + size :]
            tries -= 1
            if fewer and still(fewer):
                parts = fewer
            else:
                place += size
        size = min(size, len(parts)) // 2
    return parts
