"""What `lock` measures, with a model that is none."""

import pytest

from load.research.batching import lock


async def test_a_model_is_asked_until_the_loop_has_ticked() -> None:
    """Both are measured over the same time: the model's calls, and the one wait."""
    asked: list[float] = []
    taken_s, late_s = await lock.beside(lambda: asked.append(0.0), lock.ticks(0, wait_s=0))
    assert len(taken_s) == len(asked) > 0
    assert len(late_s) == 1


def test_lateness_is_told_by_its_middle_and_its_end() -> None:
    """One wake-up in a hundred counts, and so does the worst."""
    assert lock.late_ms([0.001] * 98 + [0.01, 0.1]) == pytest.approx({"p50": 1, "p99": 10.9, "max": 100})
