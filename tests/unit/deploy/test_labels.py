"""Labels of versions, and which versions stay loaded: what is refused, and what becomes of the model's record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.errors import UsageError
from deploy.state.labels import ALL, keeping, labelled, labels_of, loaded, standing, unlabelled
from deploy.state.traffic_split import check_unlabelled, instead
from schemas.records import Model

KNOWN = ("1", "2", "3")
SERVING = Model("digits", "3", "function", "", "d3", "label", "float32", (1,))


def test_a_label_moves_from_one_version_to_another() -> None:
    """One version has it at a time, and other labels stay."""
    first = labelled(labelled(SERVING, KNOWN, "1", "nightly"), KNOWN, "1", "audited")
    moved = labelled(first, KNOWN, "2", "nightly")
    assert moved.labels == {"nightly": "2", "audited": "1"}
    assert labels_of(first, "1") == ["audited", "nightly"]
    assert unlabelled(moved, "audited").labels == {"nightly": "2"}


@pytest.mark.parametrize(
    ("version", "label", "why"),
    [
        ("4", "nightly", "no version 4 of digits; there are: 1, 2, 3"),
        ("1", "canary", "says what a version is for"),
        ("1", "standby", "says what a version is for"),
        ("1", "2", "is a version of this model"),
        ("1", "a b", "lower-case letters"),
    ],
)
def test_what_cannot_be_a_label_is_refused(version: str, label: str, why: str) -> None:
    """Who asks for it would get something else."""
    with pytest.raises(UsageError, match=why):
        labelled(SERVING, KNOWN, version, label)


def test_a_label_that_is_not_there_cannot_be_taken() -> None:
    """The message names those that are."""
    with pytest.raises(UsageError, match=r"labels: nightly \(1\)"):
        unlabelled(replace(SERVING, labels={"nightly": "1"}), "weekly")


def test_a_version_that_is_named_as_a_label_is_refused() -> None:
    """Its queries would go to the labelled version."""
    with pytest.raises(UsageError, match="skysail model unlabel digits nightly"):
        check_unlabelled(replace(SERVING, version="nightly"), replace(SERVING, labels={"nightly": "1"}))


def test_the_versions_added_last_stand_by_and_follow_those_to_come() -> None:
    """A version that is added later takes the place of the oldest one."""
    kept = keeping(SERVING, KNOWN, latest=2)
    assert kept.standby == ("2", "3")
    four = instead(replace(SERVING, version="4"), kept, shadows_only=True)
    assert standing(four, (*KNOWN, "4")).standby == ("3", "4")


def test_all_versions_or_those_that_are_named_stand_by() -> None:
    """Those that are named stay the same, whatever is added."""
    assert keeping(SERVING, KNOWN, latest=ALL).standby == KNOWN
    named = keeping(SERVING, KNOWN, ["1"])
    assert standing(named, (*KNOWN, "4")).standby == ("1",)
    assert keeping(named, KNOWN).standby == ()
    with pytest.raises(UsageError, match="no version 7"):
        keeping(SERVING, KNOWN, ["7"])


def test_what_serves_has_a_share_a_label_or_stands_by_is_loaded() -> None:
    """And nothing else."""
    model = replace(SERVING, shares={"4": 0.1, "5": 0.0}, labels={"nightly": "2"}, standby=("3", "6"))
    assert loaded(model) == {"2", "3", "4", "5", "6"}
