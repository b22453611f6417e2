"""What a deployment starts."""

from deploy.launch import plan, replicated
from deploy.settings import Settings


def test_a_model_has_as_many_workers_as_it_is_given() -> None:
    """Numbered from 1; roles and other models have one each."""
    settings = Settings(roles=("selection", "worker"))
    found = replicated(plan(settings, ["a", "b"]), {"b": 3})
    assert found == [("selection", None, 1), ("worker", "a", 1), *(("worker", "b", number) for number in (1, 2, 3))]
