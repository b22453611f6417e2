"""Scores rows chunk by chunk, each once, going on where a killed job was.

ScoreSource ─▶ RowBlock ─▶ answers ─▶ ScoreSink; the manifest says which chunks are done
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from deploy.errors import UsageError
from deploy.scoring import writing
from deploy.scoring.chunks import DoneChunk
from deploy.scoring.reading import blocks, count
from deploy.scoring.scored import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from deploy.scoring.askers import RowAsker
    from deploy.scoring.blocks import RowBlock
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


class ScoreSource(Protocol):
    """Where rows come from."""

    def left(self, part: int, start: int, rows: int) -> Iterator[tuple[int, str, RowBlock]]:
        """Yield what is left: number of the file or partition, its name, and a block of so many rows at most."""
        ...


class ScoreSink(Protocol):
    """Where scored rows go."""

    def holds(self, number: int) -> bool:
        """Tell whether a chunk is there that was begun before a kill."""
        ...

    def put(self, chunks: Chunks, done: DoneChunk, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
        """Write a chunk, once, and note it."""
        ...

    def finish(self, chunks: Chunks) -> None:
        """Make the output of all chunks."""
        ...


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of files, in order."""

    files: Sequence[Path]

    def left(self, part: int, start: int, rows: int) -> Iterator[tuple[int, str, RowBlock]]:
        """Yield what is left."""
        for number in range(part, len(self.files)):
            path = self.files[number]
            for block in blocks(path, start if number == part else 0, rows):
                yield number, path.name, block


@dataclass(frozen=True, slots=True)
class FileSink:
    """A file of scored rows."""

    out: Path
    form: OutputForm

    def holds(self, number: int) -> bool:
        """Tell whether a chunk is there that was begun: one that is not noted is written again."""
        return False

    def put(self, chunks: Chunks, done: DoneChunk, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
        """Write a chunk, and note it."""
        path = chunks.next_name(f".{self.form.kind}")
        writing.write(path, self.form, block, ids, scored)
        chunks.add(done._replace(name=path.name))

    def finish(self, chunks: Chunks) -> None:
        """Make one file of all chunks."""
        writing.join(chunks.files(), self.out, self.form)


class ScoringJob(NamedTuple):
    """Rows, and what becomes of them.

    Attributes:
        source: of the rows.
        sink: of the answers.
        reader: says what of a row is what; its name is replaced by each file's.
        asker: answers.
        default: the answer of a row that cannot be read.
        chunk_rows: rows of a chunk.
    """

    source: ScoreSource
    sink: ScoreSink
    reader: RowReader
    asker: RowAsker
    default: Value | None
    chunk_rows: int = CHUNK_ROWS

    def run(self, chunks: Chunks, tell: Callable[[int], None]) -> ScoringReport:
        """Score what is left, and make the output.

        Args:
            chunks: of the job.
            tell: is called with how many rows are done.
        """
        if chunks.pending is not None:
            chunks.settle(is_done=self.sink.holds(len(chunks.done)))
        begun_s, resumed = time.monotonic(), chunks.rows
        tell(resumed)
        for part, name, block in self.source.left(*chunks.place(), self.chunk_rows):
            asked, scored = answered(self.reader, self.asker, block, name, self.default)
            done = DoneChunk("", part, block.until, block.rows, counted(scored))
            self.sink.put(chunks, done, block, asked.ids, scored)
            tell(chunks.rows)
        self.sink.finish(chunks)
        counts: Counter[str] = Counter()
        for chunk in chunks.done:
            counts.update(chunk.counts)
        report = ScoringReport(chunks.rows, dict(counts), resumed, time.monotonic() - begun_s)
        chunks.clear()
        return report


def answered(
    reader: RowReader, asker: RowAsker, block: RowBlock, name: str, default: Value | None
) -> tuple[AskedRows, Scored]:
    """Return a block's rows as they are asked, and their answers."""
    asked = reader.called(name).read(block)
    scored = asker.answers(asked)
    if asked.faults:
        scored.refuse(asked.faults, default)
    return asked, scored


def counted(scored: Scored) -> Mapping[str, int]:
    """Return how many rows have their default, by the reason."""
    if scored.status.count(DEFAULT) == 0:
        return {}
    pairs = zip(scored.status, scored.reason, strict=True)
    return dict(Counter(reason or "" for status, reason in pairs if status == DEFAULT))


def first_block(source: ScoreSource, what: str) -> RowBlock:
    """Return the beginning of the input, by which columns are found.

    Raises:
        UsageError: it has no rows, or a file begins with nothing that can be read.
    """
    for _, _, block in source.left(0, 0, 256):
        if len(block.faults) == block.rows and isinstance(source, FileRows):
            raise UsageError(f"none of the first {block.rows} rows of {what} can be read: {block.faults[0]}")
        return block
    raise UsageError(f"{what} has no rows")


def total(files: Sequence[Path]) -> int | None:
    """Return how many rows there are, where that is known without reading them."""
    known = [count(path) for path in files]
    return None if None in known else sum(each for each in known if each is not None)


def described(files: Sequence[Path]) -> list[list[Any]]:
    """Return what tells that files are those of an earlier start."""
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
