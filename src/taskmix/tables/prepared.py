"""How rows of a table become tasks; part of what is saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from taskmix.tables.blocks import Block, Vocabulary, blocks
from taskmix.tables.grouping import Splitter
from taskmix.tables.reading import Table
from taskmix.tables.schema import Schema
from taskmix.tables.survey import Survey, in_order


@dataclasses.dataclass
class Prepared:
    """The columns, the labels, the split, and codes of texts that were met."""

    schema: Schema
    labels: tuple[str, ...] | None
    split: Splitter
    vocabulary: Vocabulary = dataclasses.field(default_factory=Vocabulary)

    @property
    def target(self) -> str:
        return "" if self.schema.target is None else self.schema.target.name

    def blocks(self, table: Table, found: Survey) -> Iterator[Block]:
        frames = in_order(table, self.schema, found)
        yield from blocks(frames, self.vocabulary, self.labels, table.where, self.target)
