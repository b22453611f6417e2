"""What `skysail model add` publishes, and what it refuses before it has published anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.state import catalog, desired, packages
from deploy.state.desired import add
from schemas.codec import Codec
from schemas.records import Application, Model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streams.topology import Topology

CODEC = Codec()


def version(name: str, shares: dict[str, float] | None = None) -> Model:
    """Make a version of the model, with others beside it."""
    return Model("digits", name, "function", "", name, "label", "float32", (1,), shares=shares or {})


class Published:
    """A catalog in memory, in the place of the broker's.

    Attributes:
        serving: the version that serves.
        versions: those that are known.
        written: how often something was published.
    """

    def __init__(self, serving: Model, versions: Sequence[Model]) -> None:
        self.serving = serving
        self.versions = [*versions]
        self.written = 0

    def know(self, settings: Settings, codec: Codec, model: Model) -> None:
        """Add a version."""
        self.versions.append(model)
        self.written += 1

    def serve(self, settings: Settings, codec: Codec, model: Model) -> None:
        """Have a version serve."""
        self.serving = model
        self.written += 1


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    """Version 1 serves, with canary 2 beside it; the folder of a package is called as version 3."""
    found = Published(version("1", {"2": 0.9}), [version("1"), version("2")])
    monkeypatch.setattr(catalog, "read", lambda *_: {"digits": found.serving})
    monkeypatch.setattr(catalog, "versions", lambda *_: {"digits": [*found.versions]})
    monkeypatch.setattr(catalog, "know", found.know)
    monkeypatch.setattr(catalog, "serve", found.serve)
    monkeypatch.setattr(packages, "model_record", lambda *_: version("3"))
    return found


def added(tmp_path: Path, share: float) -> bool:
    """Add version 3 with a share."""
    return add(Settings(), CODEC, tmp_path, lambda *_: None, share)


def test_a_version_is_added_with_a_share_beside_the_others(published: Published, tmp_path: Path) -> None:
    """It is known, and the version that serves goes on."""
    assert added(tmp_path, 0.05)
    assert published.serving == version("1", {"2": 0.9, "3": 0.05})
    assert published.versions == [version("1"), version("2"), version("3")]


@pytest.mark.parametrize(
    ("given", "spread"),
    [
        ({}, 16),
        ({"partitions": {"digits": 32}}, 32),
        ({"replicas": {"digits": 24}}, 24),
        ({"replicas": {"digits": 2}}, 16),
    ],
)
def test_a_version_that_takes_over_has_the_partitions_of_the_former_one_or_those_of_the_settings(
    published: Published, tmp_path: Path, given: dict[str, dict[str, int]], spread: int
) -> None:
    """They belong to the model's topic, not to a version; the topic has them before it is published."""
    published.serving = replace(published.serving, partitions=16)
    published.versions.append(version("3"))
    counts: list[int] = []

    def create(_: Settings, topology: Topology) -> None:
        counts.append(topology.topics["models.digits.queries"].partitions)

    settings = Settings.model_validate({"worker": given})
    assert add(settings, CODEC, tmp_path, create)
    assert (published.serving.version, published.serving.partitions, counts) == ("3", spread, [spread])
    assert desired.use(settings, CODEC, "digits", "1") == ("3", "1")
    assert published.serving.partitions == spread


def test_what_the_settings_want_beside_what_is_published_is_a_warning_with_the_command() -> None:
    """It works as it is."""
    settings = Settings.model_validate({"worker": {"partitions": {"digits": 8}}})
    (finding,) = desired.unspread(settings, {"digits": version("1"), "other": None})
    assert not finding.fault
    assert finding.message == (
        "the queries of digits are spread over 4 partitions, and the settings want 8: skysail topics create"
    )
    assert desired.unspread(settings, {"digits": replace(version("1"), partitions=8)}) == []


def test_a_version_takes_over_from_one_that_keeps_a_share_in_one_record(published: Published) -> None:
    """Two would unload the former one between them, and load it again."""
    assert desired.use(Settings(), CODEC, "digits", "2", holdback=0.1) == ("1", "2")
    serving = published.serving
    assert (serving.version, serving.shares, published.written) == ("2", {"1": 0.1}, 1)


def test_the_versions_added_last_stand_by_when_another_is_added(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are kept: the oldest is unloaded when the third comes, and labels stay."""
    published.serving = replace(published.serving, latest=2, standby=("1", "2"), labels={"nightly": "1"})
    news: list[Model] = []
    monkeypatch.setattr(catalog, "publish", lambda _settings, _codec, models: news.extend(models))
    add(Settings(), CODEC, tmp_path, lambda *_: None)
    (serving,) = news
    assert (serving.version, serving.standby, serving.labels) == ("3", ("2", "3"), {"nightly": "1"})


def test_a_version_that_is_called_as_a_label_is_refused(published: Published, tmp_path: Path) -> None:
    """Before anything is published."""
    published.serving = replace(published.serving, labels={"3": "1"})
    with pytest.raises(UsageError, match="3 is a label of digits 1"):
        add(Settings(), CODEC, tmp_path, lambda *_: None)
    assert not published.written


@pytest.mark.parametrize("share", [float("nan"), -0.1, 1.1, float("inf")])
def test_what_is_no_share_is_refused(published: Published, tmp_path: Path, share: float) -> None:
    """Not a number least of all: the whole would be taken for it."""
    with pytest.raises(UsageError, match="between 0 and 1"):
        added(tmp_path, share)
    assert published.written == 0


def test_a_version_that_cannot_have_its_share_stays_unknown(published: Published, tmp_path: Path) -> None:
    """It can be given another one, or be packaged anew under the same name."""
    with pytest.raises(UsageError, match="another share first"):
        added(tmp_path, 0.2)
    assert published.written == 0


def test_a_package_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Before anything is asked or started."""
    settings = Settings.model_validate({"models": {"forest": tmp_path / "models" / "forest"}})
    with pytest.raises(UsageError, match=r"models\.forest: there is no folder .*models/forest; package the model"):
        desired.verify(settings)


def test_a_version_of_another_shape_is_refused_before_anything_is_published(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever means it says so."""
    wider = replace(version("3"), shape=(2,))
    monkeypatch.setattr(packages, "model_record", lambda *_: wider)
    with pytest.raises(UsageError, match=r"digits 3 takes float32\[2\], and 1, which serves, float32\[1\].*--force"):
        added(tmp_path, 1.0)
    assert published.written == 0
    monkeypatch.setattr(catalog, "publish", lambda *_: published.serve(Settings(), CODEC, wider))
    assert add(Settings(), CODEC, tmp_path, lambda *_: None, force=True)
    assert published.serving == wider


def test_a_parity_model_that_is_not_deployed_is_a_warning() -> None:
    """The application runs without it."""
    app = Application("digits", ("net",), parity="net-parity")
    (said,) = desired.strangers([app], ["net"])
    assert "names the parity model net-parity, which is not deployed" in said
    assert [*desired.strangers([app], ["net", "net-parity"])] == []


def test_two_applications_that_read_one_topic_are_refused_with_the_settings() -> None:
    """A record is complete with one query: the second would never see it."""
    given = {"models": ["one"], "from": {"topic": "orders", "input": "text"}}
    told = {"models": ["one"], "feedback": [{"topic": "orders", "id": "id", "label": "label"}]}
    assert len(desired.applications(Settings.model_validate({"applications": {"a": given}}))) == 1
    with pytest.raises(UsageError, match=r"applications\.b and applications\.a read topic orders"):
        desired.applications(Settings.model_validate({"applications": {"a": given, "b": told}}))


@pytest.mark.parametrize(
    ("terms", "is_refused"),
    [
        ({"loss": "absolute"}, True),
        ({"loss": "squared", "lessons_per_context": 5}, True),
        ({"loss": "absolute", "span": 50}, False),
        ({"loss": {"quantile": 0.9, "span": 50}}, False),
        ({"loss": "zero_one"}, False),
        ({"loss": "absolute", "lessons_per_teacher": 0}, False),
    ],
)
def test_bounds_on_teachers_need_a_span_that_no_teacher_moves(terms: dict[str, object], *, is_refused: bool) -> None:
    """One that is learnt follows every label."""
    application = {"models": ["forest"], "policy": "single", "lessons_per_teacher": 5, **terms}
    settings = Settings.model_validate({"applications": {"shop": application}})
    if is_refused:
        with pytest.raises(UsageError, match="such as span: 50"):
            desired.applications(settings)
    else:
        assert desired.applications(settings)
