"""Tests of the pinned jars: what is fetched, what is refused, what a cached folder needs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from deploy.errors import MissingError
from deploy.local.jars import VERSION_VARIABLE, Jar, cache_folder, ensure, missing, pinned, verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def jar(name: str, content: bytes) -> Jar:
    """Return a pin of a jar with this content."""
    return Jar(f"{name}-1.jar", f"org.example:{name}:1", hashlib.sha256(content).hexdigest())


class FakeRepository:
    """Serves given contents by coordinates and remembers what was asked for."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = contents
        self.asked: list[str] = []

    def __call__(self, coordinates: Sequence[str], into: Path) -> list[Path]:
        """Write each file under `into`, as a download does."""
        into.mkdir()
        self.asked += coordinates
        names = [coordinate.split(":")[1] for coordinate in coordinates]
        for name in names:
            (into / name).write_bytes(self.contents[name])
        return [into / name for name in names]


def unreachable(_coordinates: Sequence[str], _into: Path) -> list[Path]:
    """Stand for a machine without a network."""
    raise MissingError("no network")


def test_every_pin_is_complete_and_unique() -> None:
    """Each pinned jar has full coordinates, a SHA-256, and a file name of its own that the coordinates give."""
    jars = pinned().jars
    assert len({one.name for one in jars}) == len(jars) > 40
    for one in jars:
        _, artifact, version = one.coordinates.split(":")
        assert one.name == f"{artifact}-{version}.jar"
        assert len(bytes.fromhex(one.sha256)) == 32


def test_another_version_has_the_same_jars_and_kafka_s_own_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try a Kafka before it is pinned: third-party jars are the pinned ones."""
    monkeypatch.setenv(VERSION_VARIABLE, "9.9.9")
    tried, usual = pinned.__wrapped__(), pinned()
    assert tried.version == "9.9.9"
    for jar, before in zip(tried.jars, usual.jars, strict=True):
        if before.coordinates.startswith("org.apache.kafka:"):
            assert (jar.name, jar.coordinates.split(":")[2], jar.sha256) == (
                before.name.replace(usual.version, "9.9.9"),
                "9.9.9",
                "",
            )
        else:
            assert jar == before


def test_kafka_s_own_jars_all_have_the_pinned_version() -> None:
    """A stray older kafka-clients breaks the broker at start, so all of them agree."""
    versions = {one.coordinates.rsplit(":", 1)[1] for one in pinned().jars if one.name.startswith("kafka")}
    assert versions == {pinned().version}


def test_an_empty_folder_is_filled_with_exactly_the_pinned_files(tmp_path: Path) -> None:
    """Everything absent is fetched and lands flat, with no left-overs."""
    pins = [jar("a", b"A"), jar("b", b"B")]
    folder = ensure(tmp_path / "cache", pins, FakeRepository(a=b"A", b=b"B"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"a-1.jar": b"A", "b-1.jar": b"B"}


def test_only_what_is_absent_is_fetched(tmp_path: Path) -> None:
    """A jar that is there is not asked for again."""
    (tmp_path / "a-1.jar").write_bytes(b"A")
    repository = FakeRepository(b=b"B")
    ensure(tmp_path, [jar("a", b"A"), jar("b", b"B")], repository)
    assert repository.asked == ["org.example:b:1"]


def test_a_full_folder_needs_no_network(tmp_path: Path) -> None:
    """Once all are cached nothing is fetched."""
    (tmp_path / "a-1.jar").write_bytes(b"A")
    assert ensure(tmp_path, [jar("a", b"A")], unreachable) == tmp_path


def test_a_fetched_jar_with_another_checksum_is_refused_and_not_kept(tmp_path: Path) -> None:
    """What does not have the pinned SHA-256 never reaches the folder."""
    with pytest.raises(MissingError, match=r"not the pinned org\.example:a:1"):
        ensure(tmp_path, [jar("a", b"A")], FakeRepository(a=b"tampered"))
    assert list(tmp_path.iterdir()) == []


def test_a_cached_jar_that_changed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A damaged cache is named, with both digests and the way out."""
    (tmp_path / "a-1.jar").write_bytes(b"bent")
    with pytest.raises(MissingError, match=r"a-1\.jar is not .* SHA-256 [0-9a-f]{64}, expected .* Delete the file"):
        ensure(tmp_path, [jar("a", b"A")], unreachable)


def test_verifying_names_a_jar_that_is_absent(tmp_path: Path) -> None:
    """Verifying an incomplete folder is an error, not a pass."""
    with pytest.raises(MissingError, match=r"a-1\.jar"):
        verify(tmp_path, [jar("a", b"A")])


def test_missing_lists_what_is_not_there(tmp_path: Path) -> None:
    """Only absent files are listed, in the order of the pins."""
    (tmp_path / "b-1.jar").write_bytes(b"")
    pins = [jar("a", b""), jar("b", b""), jar("c", b"")]
    assert [one.name for one in missing(tmp_path, pins)] == ["a-1.jar", "c-1.jar"]


def test_the_cache_can_be_put_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`SKYSAIL_CACHE` is the folder under which each version of Kafka has its own."""
    monkeypatch.setenv("SKYSAIL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / f"kafka-{pinned().version}"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error says which folder, and that another can be chosen."""
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(MissingError, match=r"Cannot write to .*SKYSAIL_CACHE"):
        ensure(blocked / "cache", [jar("a", b"A")], unreachable)
