"""The measurement behind what canaries teach: the page's figures are those of the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

from load.research.operation.canary_lessons import ALONE, MIXED, WEIGHED, WITH, Case, play, told

PAGE = Path(__file__).parents[3] / "docs" / "versions.md"


@pytest.mark.parametrize("way", [MIXED, WEIGHED])
def test_the_page_has_the_figures_of_the_simulation(way: str) -> None:
    """One policy and share of all."""
    assert told(Case("exp3", 0.5), way) in PAGE.read_text(encoding="utf-8").splitlines()


def test_leaving_a_canary_out_without_the_weight_prefers_the_worse_model() -> None:
    """Half of its losses would be missing; the page says so."""
    alike = Case("exp3", 0.5, canary=0.25, stable=0.25)
    alone, weighed = (play(alike, way, seed=1).weights[WITH] for way in (ALONE, WEIGHED))
    assert alone > 0.5 > weighed
