"""The layouts that the same rows are kept in: how tables are cut, where rows are stored, where queries run."""

from __future__ import annotations

from typing import NamedTuple

from schema import Table


class Layout(NamedTuple):
    """`partitioning`: `one`, `hash`, `range`, `rules` or `split` (cut after the rows came). `storage`: `memory`, `files`
    (flushed), `compacted` or `both` (the first half flushed, the rest in memory). `run_at_data`: the session's setting.
    """

    partitioning: str
    storage: str
    run_at_data: str

    @property
    def name(self) -> str:
        return f"{self.partitioning}_{self.storage}_{self.run_at_data}"

    def create(self, table: Table) -> str:
        return table.ours(clause(self.partitioning, table))

    def between(self, table: Table) -> list[str]:
        """Statements between the first half of the rows and the second one."""
        return [f"ADMIN flush_table('{table.name}')"] if self.storage in ("both", "compacted") else []

    def after(self, table: Table) -> list[str]:
        """Statements after rows have come or gone."""
        statements = [f"ADMIN flush_table('{table.name}')"] if self.storage in ("files", "compacted") else []
        if self.storage == "compacted":
            statements.append(f"ADMIN compact_table('{table.name}')")
        return statements

    def finish(self, table: Table) -> list[str]:
        """Statements after the table was loaded."""
        bounds = BOUNDS[table.column(table.key[0]).kind]
        cut = [f"ALTER TABLE {table.name} SPLIT AT (({bounds[1]}))"] if self.partitioning == "split" else []
        return [*self.after(table), *cut]


# Cuts by the first column of the key, whose values lie around them.
BOUNDS = {"int": ("2", "15", "35"), "text": ("'A'", "'b'", "'é'")}


def clause(partitioning: str, table: Table) -> str:
    first = table.key[0]
    bounds = BOUNDS[table.column(first).kind]
    if partitioning == "hash":
        return f" PARTITION BY HASH ({first}) PARTITIONS 4"
    if partitioning == "range":
        return f" PARTITION BY RANGE ({first}) SPLIT AT ({', '.join(f'({bound})' for bound in bounds)})"
    if partitioning == "rules":
        low, high = bounds[0], bounds[2]
        return f" PARTITION ON COLUMNS ({first}) ({first} < {low}, {first} >= {low} AND {first} < {high}, {first} >= {high})"
    return ""


LAYOUTS = (
    Layout("one", "memory", "off"),
    Layout("hash", "files", "always"),
    Layout("rules", "both", "always"),
    Layout("range", "compacted", "on"),
    Layout("one", "files", "always"),
    Layout("hash", "memory", "on"),
    Layout("split", "both", "off"),
    Layout("hash", "compacted", "off"),
    Layout("range", "memory", "always"),
)
# For CI: as few as have each way of partitioning, storing and running once.
FEW = LAYOUTS[:4]
