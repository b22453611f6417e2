"""Models small enough to read, named by dotted paths in tests (`tests.toys:parity`); no torch here."""

from __future__ import annotations

import json
import os
import threading
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def parity(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Label a row by whether its numbers add up to an odd number."""
    return np.rint(rows.sum(axis=1)).astype(np.int64) % 2


def apart(label: float, answer: float) -> float:
    """Judge an answer: by how far it is from the label."""
    return abs(label - answer)


def halves(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute two features of a row: half of its sum, and half of its first number."""
    return np.stack([rows.sum(axis=1) / 2, rows[:, 0] / 2], axis=1)


def nought(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute a feature that says nothing."""
    return np.zeros((len(rows), 1))


def itself(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute a feature that is the row's first number."""
    return rows[:, :1].astype(np.float64)


def boast(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Score every row as odd, and be sure of it."""
    return np.tile([0.01, 0.99], (len(rows), 1))


def contrary(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Label a row by what `parity` would not say."""
    return 1 - parity(rows)


def corner(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Label an image (channels, height, width) by its first number."""
    return rows[:, 0, 0, 0].astype(np.int64)


def total(rows: NDArray[np.float32]) -> list[float]:
    """Answer the sum of a row."""
    return [float(row.sum(dtype=np.float64)) for row in rows]


def shout(rows: Sequence[str]) -> list[str]:
    """Answer a text in capitals; refuses the empty one."""
    if "" in rows:
        raise ValueError("an empty text")
    return [text.upper() for text in rows]


def lengths(rows: Sequence[bytes]) -> NDArray[np.float64]:
    """Score bytes as short or long."""
    return np.array([[1 / (1 + len(row)), len(row) / (1 + len(row))] for row in rows])


def sums(rows: Sequence[str]) -> list[str]:
    """Answer sum and difference of two tensors, as numbers or texts: Triton's models `simple` and `simple_string`."""
    return [_sums(json.loads(row)) for row in rows]


def _sums(row: dict[str, list[Any]]) -> str:
    kind = type(row["INPUT0"][0])
    pairs = [(int(one), int(other)) for one, other in zip(row["INPUT0"], row["INPUT1"], strict=True)]
    totals, rests = [kind(one + other) for one, other in pairs], [kind(one - other) for one, other in pairs]
    return json.dumps({"OUTPUT0": totals, "OUTPUT1": rests})


def same(rows: Sequence[str]) -> list[str]:
    """Answer a tensor as it is: Triton's model `simple_identity`."""
    return [json.dumps({"OUTPUT0": json.loads(row)["INPUT0"]}) for row in rows]


def left_and_right(rows: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.floating]]:
    """Answer two tensors of two, by name, as the network of this name."""
    return {"total": rows["left"].sum(1) + rows["right"], "both": rows["left"] - rows["right"][:, None]}


def moody(rows: Sequence[str]) -> list[str]:
    """Do what the text says: raise, forget a row, hang or end the process; otherwise chat and answer the text."""
    if "raise" in rows:
        raise RuntimeError("as you wish")
    if "forget" in rows:
        return list(rows)[:-1]
    if "hang" in rows:
        threading.Event().wait()
    if "die" in rows:
        os._exit(3)
    print("a model may print what it likes")  # noqa: T201 - that it does is what is tested
    return list(rows)


def telling(rows: Sequence[str]) -> list[str]:
    """Answer each text with itself; raise what names the text, as numpy and scikit-learn do, if it wants to."""
    for row in rows:
        if "raise" in row:
            raise ValueError(f"could not convert string to float: {row!r}")
    return list(rows)


def whereabouts(rows: Sequence[str]) -> list[str]:
    """Answer a text with the process that does it."""
    return [f"{row} {os.getpid()}" for row in rows]


def hungry(rows: Sequence[str]) -> list[str]:
    """Take as many MiB as the text says, then answer it."""
    return [row for row in rows if len(bytearray(int(row or 0) << 20)) >= 0]


def drowsy(rows: Sequence[str]) -> list[str]:
    """Sleep 15 ms over each text, and answer it."""
    time.sleep(0.015 * len(rows))
    return list(rows)


NUMBER = 1


def crowd(rows: Sequence[str]) -> list[int]:
    """Answer how many rows there are."""
    return [len(rows)] * len(rows)


def identified(frame: Any) -> list[str]:
    """Answer a column of a data frame that cannot travel."""
    return [str(each) for each in frame["id"]]


def stamped(frame: Any) -> list[str]:
    """Answer a column of moments, and of which type it is."""
    return [f"{each.isoformat()} {frame['at'].dtype}" for each in frame["at"]]


def greedy(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Overwrite what it is given, answer what was there, and refuse a batch with a negative number."""
    given = rows[:, 0].astype(np.int64)
    rows[:] = 7
    if (given < 0).any():
        raise ValueError("a negative number")
    return given


def whole_floats(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Answer whole numbers as floats."""
    return np.rint(rows.sum(axis=1)).astype(np.float64)


def lying(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give scores (k, n), which are taken for (n, k) where there are as many rows."""
    return np.stack([rows[:, 0], rows[:, 1], rows[:, 2]])


def fickle(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer something else at each call."""
    return np.full(len(rows), next(_CALLS))


_CALLS = count()


class Counting:
    """A model that is an object."""

    @classmethod
    def of(cls) -> Counting:
        """Make one."""
        return cls()

    def answer(self, rows: Sequence[str]) -> list[int]:
        """Answer how many rows there are."""
        return crowd(rows)

    __call__ = answer


counting = Counting()
partly = partial(crowd)


def fatal(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Answer 7; a row that begins with 13 ends the process, as a crash in a library does."""
    if (rows[:, 0] == 13).any():
        os._exit(3)
    return np.full(len(rows), 7, dtype=np.int64)
