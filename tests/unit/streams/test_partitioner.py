"""Keys must land where Java's client puts them."""

import pytest

from streams.topology import murmur2, partition_of

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_hashes_as_java_does(key: bytes, expected: int) -> None:
    """The values are those of Kafka's own unit test (UtilsTest.testMurmur2)."""
    assert murmur2(key) == expected


def test_a_partition_is_never_negative() -> None:
    """Java clears the sign bit before it takes the remainder; Python's remainder alone would differ."""
    assert partition_of(b"21", 4) == (-973932308 & 0x7FFFFFFF) % 4
    assert {partition_of(b"%d" % i, 4) for i in range(64)} == {0, 1, 2, 3}


def test_every_length_of_tail_is_hashed() -> None:
    """One to three bytes after the last whole word change the hash."""
    assert len({murmur2(b"word" + b"x" * extra) for extra in range(5)}) == 5
