"""`skysail app` as people read and type it."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner
from pydantic import ValidationError

from deploy.cli import skysail
from deploy.cli.app import _asked, _changed, _worded
from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.state.desired import applications, checked
from policies.errors import PolicyError
from schemas.records import Application, Source


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
        ((Source("users", 2, wait=0.5),), "(name=users, width=2, key=context, store=topic, wait=0.5)"),
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


def test_a_loss_is_typed_as_it_stands_in_the_settings() -> None:
    """A span of another kind of loss goes with it, one that is typed stays."""
    costs = "loss={cost: {fraud: {ok: 40}, ok: {fraud: 1}}, unit: EUR}"
    spanned = _changed(Application("cards", ("a",)), ["loss={quantile: 0.9, span: [0, 300]}"])
    assert (spanned.loss, spanned.span) == ('{"quantile":0.9}', 300.0)
    priced = _changed(spanned, [costs])
    assert (priced.loss, priced.span) == ('{"cost":{"fraud":{"ok":40},"ok":{"fraud":1}},"unit":"EUR"}', None)
    assert _changed(spanned, ["loss=absolute"]).span is None
    assert _changed(spanned, ["loss=absolute", "span=5"]).span == 5.0
    assert _changed(spanned, ["loss={quantile: 0.5}"]).span == 300.0
    assert _changed(spanned, ["max_weight=10"]).max_weight == 10.0
    (written,) = applications(Settings.model_validate({"applications": {"cards": {"models": ["a"], **_read(costs)}}}))
    assert written.loss == priced.loss


def test_an_examination_is_typed_as_shares_with_commas_or_as_a_list() -> None:
    """Whole numbers are shares, too; `none` takes it away."""
    shown = _changed(Application("films", ("a",)), ["examination=1,0.5"])
    assert shown.examination == (1.0, 0.5)
    assert _changed(shown, ["examination=[1, 0]"]).examination == (1.0, 0.0)
    assert _changed(shown, ["examination=none"]).examination == ()
    with pytest.raises(UsageError, match="must be a number"):
        _changed(shown, ["examination=1,half"])


def _read(change: str) -> dict[str, object]:
    return {"loss": yaml.safe_load(change.removeprefix("loss="))}


def test_a_span_is_said_once() -> None:
    """In the loss or beside it; what is no loss is refused with its key."""
    stock = {"models": ["a"], "loss": {"quantile": 0.9, "span": 3}}
    with pytest.raises(ValidationError, match="span is 4, and 3 in loss: say it once"):
        Settings.model_validate({"applications": {"stock": {**stock, "span": 4}}})
    with pytest.raises(ValidationError, match="nothing says what 'fraud' costs where 'ok' is true"):
        Settings.model_validate({"applications": {"stock": {**stock, "loss": {"cost": {"fraud": {"ok": 40}}}}}})


def test_the_settings_name_versions_alike() -> None:
    """As they are typed after `models=`."""
    settings = Settings.model_validate({"applications": {"digits": {"models": ["svc", "forest@2"]}}})
    (application,) = applications(settings)
    assert (application.models, application.versions) == (("svc", "forest"), {"forest": "2"})


def test_an_application_is_shown_by_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without a value are one line: most applications have a handful of their own."""
    monkeypatch.setattr("deploy.cli.app.catalog.read", lambda *_: {"digits": Application("digits", ("net",))})
    monkeypatch.setattr("deploy.cli.app.promotions.print_course", lambda *_: None)
    told = CliRunner().invoke(skysail, ["app", "show", "digits"]).output
    first, _, unset = told.partition("not set: ")
    assert "net" in first
    assert "none" not in first
    assert "default_output" in unset
    assert unset.count("\n") == 1


@pytest.mark.parametrize("typed", ["parity=none", "parity="])
def test_a_text_that_is_not_set_is_typed_as_it_is_shown(typed: str) -> None:
    """So what `skysail app show` prints can be set again."""
    coded = _changed(Application("digits", ("net",)), ["parity=net-parity"])
    assert coded.parity == "net-parity"
    assert _changed(coded, [typed]).parity == ""


@pytest.mark.parametrize("typed", ["sources=[]", "stages={}"])
def test_what_is_set_in_the_file_is_said_to_be(typed: str) -> None:
    """With the command that publishes it; what is there stays when other keys are set."""
    looking = Application("ads", ("clicks",), sources=(Source("users", 2),))
    with pytest.raises(UsageError, match="under `applications`; then run: skysail app apply"):
        _changed(looking, [typed])
    assert _changed(looking, ["slo_ms=50"]).sources == (Source("users", 2),)


def test_a_source_of_candidates_that_the_policy_cannot_rank_by_is_refused() -> None:
    """In the settings as on the command line."""
    films = {"name": "films", "width": 8, "key": "candidate"}
    given = {"models": ["films"], "policy": "ridge", "parameters": {"features": 8}, "sources": [films]}
    settings = Settings.model_validate({"applications": {"ratings": given}})
    (application,) = applications(settings)
    with pytest.raises(PolicyError, match="linucb does not rank candidates: leave out the source films"):
        checked(_changed(application, ["policy=linucb"]))
    with pytest.raises(PolicyError, match="make the widths 4 together, or set the parameter features=8"):
        applications(Settings.model_validate({"applications": {"ratings": given | {"parameters": {"features": 4}}}}))
