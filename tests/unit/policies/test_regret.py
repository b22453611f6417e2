"""Our bandits lose as much as those of other libraries do."""

from __future__ import annotations

import pytest

from load.research.learning.regret import HORIZONS, apart


@pytest.mark.parametrize("library", ["river", "mabwiser"])
@pytest.mark.parametrize(("policy", "horizon"), [("ucb1", HORIZONS[0]), ("thompson", HORIZONS[0])])
def test_regret_is_within_three_standard_errors_of_other_libraries(policy: str, library: str, horizon: int) -> None:
    """Five arms, thirty seeds; the scenario `evaluation` compares the longer horizon, too."""
    assert apart(policy, library, horizon) <= 3.0
