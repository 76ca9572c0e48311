"""The catalogue of hostile statements: all kinds, in the order of their families."""

from families import breadth, changes, joins, nesting, values, wrapped


def catalogue():
    """Every kind; no two have one name."""
    plain = [*nesting.kinds(), *breadth.kinds(), *values.kinds(), *joins.kinds(), *changes.kinds()]
    return plain + wrapped.kinds(plain)
