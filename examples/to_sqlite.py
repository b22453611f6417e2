"""Writes an application's predictions into a table of SQLite: each query's first answer, once.

    python examples/to_sqlite.py digits answers.db

Kill it whenever you like, and run as many as there are partitions. What had been written but not committed is read
again, and changes nothing: a row's key is the query's id. With another database it is the same three lines of SQL.
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing

from skysail import Prediction, Tensor, consume

TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    query_id TEXT PRIMARY KEY, application TEXT, context TEXT, answer TEXT, status TEXT, confidence REAL,
    answered_us INTEGER
)
"""
INSERT = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (query_id) DO NOTHING"


def row(given: Prediction) -> tuple[object, ...]:
    """Return a prediction as a row of the table."""
    answer = given.answer.numpy().tolist() if isinstance(given.answer, Tensor) else given.answer
    text = None if answer is None else str(answer)
    return (
        given.query_id,
        given.application,
        given.context,
        text,
        given.status.value,
        given.confidence,
        given.answered_us,
    )


def write(application: str, database: str, group: str, bootstrap: str, prefix: str, idle_s: float | None) -> None:
    """Write batch by batch, each in one transaction, which ends before Kafka is told that it is handled."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(TABLE)
        with consume(application, group=group, bootstrap=bootstrap, prefix=prefix, idle_s=idle_s) as predictions:
            for batch in predictions.batches():
                with connection:
                    connection.executemany(INSERT, map(row, batch))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("application")
    parser.add_argument("database")
    parser.add_argument("--group", default="sqlite")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default="skysail")
    parser.add_argument("--idle", type=float, default=None, help="end when nothing has come for so many seconds")
    given = parser.parse_args()
    write(given.application, given.database, given.group, given.bootstrap, given.prefix, given.idle)
