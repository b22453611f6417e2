"""A simulation that takes too long for its test: the time is up, and no role is said to have ended by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from load.research.seeds.world import simulate
from streams.operators.join.kernel import Joiner
from tests.unit.load.test_seeds_find import small

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effects, Record

pytestmark = pytest.mark.timeout(120)


class InterruptedJoiner(Joiner):
    """One that the signal of a test's timeout comes upon."""

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Be interrupted."""
        pytest.fail("the time is up")


def test_a_timeout_that_comes_upon_a_role_ends_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised wherever the program is; in a role's task it would be kept as what has ended the role."""
    monkeypatch.setattr("load.research.seeds.roles._COLUMNAR", 0.0)
    with pytest.raises(pytest.fail.Exception, match="the time is up"):
        simulate(small(1, 15.0, 4.0), joiner=InterruptedJoiner)
