"""Scores files: chunk by chunk, each row once, going on where a killed job was."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from deploy.errors import UsageError
from deploy.scoring import writing
from deploy.scoring.blocks import blocks, count
from deploy.scoring.chunks import DoneChunk
from deploy.scoring.scored import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from deploy.scoring.askers import RowAsker
    from deploy.scoring.blocks import Block
    from deploy.scoring.chunks import Chunks
    from deploy.scoring.inputs import AskedRows, RowReader
    from deploy.scoring.scored import Scored
    from deploy.scoring.writing import OutputForm
    from schemas.records import Value

CHUNK_ROWS: Final = 65_536  # a third of a second's work for a quick model: a kill costs no more


class ScoringReport(NamedTuple):
    """What came of a job.

    Attributes:
        rows: in the output, all chunks.
        counts: of rows by reason, for those whose answer is the default.
        resumed: rows that an earlier start had done.
        took_s: this start.
    """

    rows: int
    counts: dict[str, int]
    resumed: int
    took_s: float


class FileJob(NamedTuple):
    """Files, and what becomes of them.

    Attributes:
        files: of the input, in order.
        out: the file that is written.
        reader: of their rows; its name is replaced by each file's.
        form: of the output.
        asker: answers.
        default: the answer of a row that cannot be read.
        chunk_rows: rows of a chunk.
    """

    files: Sequence[Path]
    out: Path
    reader: RowReader
    form: OutputForm
    asker: RowAsker
    default: Value | None
    chunk_rows: int = CHUNK_ROWS

    def run(self, chunks: Chunks, tell: Callable[[int], None]) -> ScoringReport:
        """Score what is left, and write the output.

        Args:
            chunks: of the job.
            tell: is called with how many rows are done.
        """
        begun_s, resumed = time.monotonic(), chunks.rows
        tell(resumed)
        for source, block in self._left(*chunks.place()):
            path = chunks.next_name(f".{self.form.kind}")
            asked, scored = answered(self.reader, self.asker, block, self.files[source].name, self.default)
            writing.write(path, self.form, block, asked.ids, scored)
            chunks.add(DoneChunk(path.name, source, block.first, block.rows, counted(scored)))
            tell(chunks.rows)
        writing.join(chunks.files(), self.out, self.form)
        counts = sum((Counter(chunk.counts) for chunk in chunks.done), Counter())
        report = ScoringReport(chunks.rows, dict(counts), resumed, time.monotonic() - begun_s)
        chunks.clear()
        return report

    def _left(self, source: int, start: int) -> Iterator[tuple[int, Block]]:
        for number in range(source, len(self.files)):
            for block in blocks(self.files[number], start if number == source else 0, self.chunk_rows):
                yield number, block


def answered(
    reader: RowReader, asker: RowAsker, block: Block, name: str, default: Value | None
) -> tuple[AskedRows, Scored]:
    """Return a block's rows as they are asked, and their answers."""
    asked = reader.called(name).read(block)
    scored = asker.answers(asked)
    if asked.faults:
        scored.refuse(asked.faults, default)
    return asked, scored


def counted(scored: Scored) -> dict[str, int]:
    """Return how many rows have their default, by the reason."""
    if scored.status.count(DEFAULT) == 0:
        return {}
    pairs = zip(scored.status, scored.reason, strict=True)
    return dict(Counter(reason or "" for status, reason in pairs if status == DEFAULT))


def first_block(files: Sequence[Path]) -> Block:
    """Return the beginning of the input, by which columns are found.

    Raises:
        UsageError: it has no rows.
    """
    for path in files:
        for block in blocks(path, 0, 256):
            return block
    raise UsageError(f"{files[0].parent if len(files) > 1 else files[0]} has no rows")


def total(files: Sequence[Path]) -> int | None:
    """Return how many rows there are, where that is known without reading them."""
    known = [count(path) for path in files]
    return None if None in known else sum(each for each in known if each is not None)


def described(files: Sequence[Path]) -> list[list[Any]]:
    """Return what tells that files are those of an earlier start."""
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
