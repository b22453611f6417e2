"""`skysail app` as people read and type it."""

from __future__ import annotations

import pytest

from deploy.cli.app import _asked, _changed, _worded
from deploy.config.settings import Settings
from deploy.state.desired import applications
from schemas.records import Application


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "none"),
        (True, "true"),
        (600.0, "600"),
        (("svc", "forest"), "svc, forest"),
        ((), "none"),
        ({"eta": 0.1}, "eta=0.1"),
        ("exp3", "exp3"),
        (-1, "-1"),
        ("", "none"),
    ],
)
def test_values_are_shown_as_they_are_typed(value: object, said: str) -> None:
    """No tuple, no dictionary and no None of Python's."""
    assert _worded(value) == said


def test_models_are_typed_with_the_version_that_is_to_answer() -> None:
    """By number or label; typed without one, any version answers again, and other keys leave it as it is."""
    named = _changed(Application("digits", ()), ["models=svc, forest@nightly", "slo_ms=50"])
    assert (named.models, named.versions) == (("svc", "forest"), {"forest": "nightly"})
    assert _asked(named) == "svc, forest@nightly"
    assert _changed(named, ["slo_ms=60"]).versions == {"forest": "nightly"}
    assert _changed(named, ["models=svc,forest"]).versions == {}


def test_the_settings_name_versions_alike() -> None:
    """As they are typed after `models=`."""
    settings = Settings.model_validate({"applications": {"digits": {"models": ["svc", "forest@2"]}}})
    (application,) = applications(settings)
    assert (application.models, application.versions) == (("svc", "forest"), {"forest": "2"})


@pytest.mark.parametrize("typed", ["parity=none", "parity="])
def test_a_text_that_is_not_set_is_typed_as_it_is_shown(typed: str) -> None:
    """So what `skysail app show` prints can be set again."""
    coded = _changed(Application("digits", ("net",)), ["parity=net-parity"])
    assert coded.parity == "net-parity"
    assert _changed(coded, [typed]).parity == ""
