"""What a deployment starts."""

import pytest
from pydantic import ValidationError

from deploy.launch import plan, replicated
from deploy.settings import Settings


def test_the_settings_say_how_many_workers_a_model_has() -> None:
    """At most as many as its topic has partitions; another would have nothing to do."""
    settings = Settings.model_validate({"roles": ["worker"], "worker": {"replicas": {"a": 2}}})
    found = replicated(plan(settings, ["a", "b"]), settings.worker.replicas)
    assert found == [("worker", "a", 1), ("worker", "a", 2), ("worker", "b", 1)]
    with pytest.raises(ValidationError, match="less than or equal to 4"):
        Settings.model_validate({"worker": {"replicas": {"a": 5}}})


def test_a_model_has_as_many_workers_as_it_is_given() -> None:
    """Numbered from 1; roles and other models have one each."""
    settings = Settings(roles=("selection", "worker"))
    found = replicated(plan(settings, ["a", "b"]), {"b": 3})
    assert found == [("selection", None, 1), ("worker", "a", 1), *(("worker", "b", number) for number in (1, 2, 3))]
