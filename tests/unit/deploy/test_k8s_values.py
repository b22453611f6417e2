"""What `skysail k8s` prints follows from the settings and the topology, and holds no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.k8s.strimzi import short
from tests.manifests import check

TOPICS = Path(__file__).parents[3] / "docs" / "topics.yaml"
SETTINGS = {
    "prefix": "shop",
    "replication": 3,
    "roles": ["selection", "joiner", "learner", "mapping", "worker", "control", "gateway"],
    "worker": {"replicas": {"svc": 2}, "partitions": {"svc": 8}},
    "models": {"svc": "models/svc-1", "forest": "models/forest-1"},
    "applications": {"digits": {"models": ["svc", "forest"]}},
}


def printed(folder: Path, *arguments: str, **changed: Any) -> Any:
    """Return the documents that the command prints for these settings."""
    file = folder / "skysail.yaml"
    file.write_text(json.dumps(SETTINGS | changed), encoding="utf-8")
    done = CliRunner().invoke(skysail, ["k8s", *arguments, "--config", str(file)], catch_exceptions=False)
    assert done.exit_code == 0
    return [*yaml.safe_load_all(done.stdout)]


def deployment(folder: Path, **changed: Any) -> dict[str, Any]:
    """Return the chart's values."""
    (found,) = printed(folder, "values", **changed)
    its: dict[str, Any] = found["deployment"]
    return its


def test_topics_are_those_of_the_document(tmp_path: Path) -> None:
    """docs/topics.yaml has them for a model: the same names, partitions and settings, as Kafka names these."""
    found = {topic["name"]: topic for topic in deployment(tmp_path, prefix="skysail")["topics"]}
    channels = yaml.safe_load(TOPICS.read_text(encoding="utf-8"))["channels"].values()
    for channel in channels:
        topic, kafka = found[channel["address"].replace("{model}", "forest")], channel["bindings"]["kafka"]
        expected = {name: value for name, value in kafka["topicConfiguration"].items() if name != "cleanup.policy"}
        assert (topic["partitions"], topic["replicas"]) == (kafka["partitions"], 3)
        assert expected.items() <= topic["config"].items()
    assert found["skysail.models.svc.queries"]["partitions"] == 8
    assert len(found) == len(channels) + 2  # of the second model: its queries and their dead letters


def test_every_role_and_model_has_pods_of_its_own(tmp_path: Path) -> None:
    """With the group and the topic by which it is behind, and no more pods than partitions."""
    found = {role["role"]: role for role in deployment(tmp_path)["roles"]}
    assert found.keys() == {"selection", "worker.forest", "worker.svc", "joiner", "learner", "gateway", "control"}
    worker = found["worker.svc"]
    assert worker["arguments"] == ["run", "--role", "worker", "--model", "svc"]
    assert (worker["group"], worker["topic"]) == ("shop.worker.svc", "shop.models.svc.queries")
    assert (worker["replicas"], worker["most"]) == (2, 8)
    assert {name for name, role in found.items() if role["alone"]} == {"control"}


def test_models_that_share_a_process_have_the_pods_of_their_pool(tmp_path: Path) -> None:
    """As many as the plan counts with: KEDA does not add any."""
    hosts = {"small": {"models": ["forest", "svc"], "replicas": 2}}
    found = {role["role"]: role for role in deployment(tmp_path, hosts=hosts, worker={})["roles"]}
    assert "worker.svc" not in found
    host = found["host.small"]
    assert (host["arguments"][-2:], host["replicas"], host["most"], host["topic"]) == (["--pool", "small"], 2, 2, "")


def test_mapping_runs_where_there_is_something_to_map(tmp_path: Path) -> None:
    """Its user may read and write the topics that are named, and no others outside of the prefix."""
    mapped = {"models": ["svc"], "from": {"topic": "orders", "id": "order", "input": ["amount"]}}
    found = deployment(
        tmp_path, applications={"digits": mapped | {"to": {"topic": "scored", "fields": {"score": "answer"}}}}
    )
    assert "mapping" in [role["role"] for role in found["roles"]]
    (user,) = [user for user in found["users"] if user["name"] == "shop-mapping"]
    outside = {
        acl["resource"]["name"]: acl["operations"]
        for acl in user["acls"]
        if not acl["resource"]["name"].startswith("shop.")
    }
    assert outside == {"orders": ["Read", "Describe"], "scored": ["Write", "Describe"]}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"redis": {"password": "geheim"}}, "redis.password"),
        ({"redis": {"url": "redis://:geheim@redis:6379/0"}}, "redis.url"),
        ({"gateway": {"tokens": "geheim-geheim-geheim *"}}, "gateway.tokens"),
        ({"kafka": {"properties": {"sasl_plain_password": "geheim"}}}, "kafka.properties.sasl_plain_password"),
        ({"store": "embedded"}, "use Redis"),
        ({"models": {}, "applications": {}}, "name no models"),
    ],
)
def test_what_does_not_belong_there_is_refused(tmp_path: Path, changed: dict[str, Any], word: str) -> None:
    """A ConfigMap is read by many; and it is said which setting it is, not what it holds."""
    file = tmp_path / "skysail.yaml"
    file.write_text(json.dumps(SETTINGS | changed), encoding="utf-8")
    done = CliRunner().invoke(skysail, ["k8s", "values", "--config", str(file)])
    assert done.exit_code != 0
    assert word in str(done.exception)
    assert "geheim" not in str(done.exception) + done.output


def test_the_environment_of_who_prints_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods have another one."""
    before = deployment(tmp_path)
    monkeypatch.setenv("SKYSAIL_PREFIX", "other")
    assert deployment(tmp_path) == before


def test_strimzi_takes_every_topic_and_user(tmp_path: Path) -> None:
    """By the schemas of its own resources; a topic has the name of its resource."""
    found = printed(tmp_path, "strimzi", "--cluster", "kafka", "--namespace", "brokers")
    for manifest in found:
        check(manifest)
        assert manifest["metadata"]["labels"] == {"strimzi.io/cluster": "kafka"}
    users = {manifest["metadata"]["name"] for manifest in found if manifest["kind"] == "KafkaUser"}
    assert {"shop-selection", "shop-worker-svc", "shop-operator", "shop-asker", "shop-teacher"} <= users


def test_who_may_act_on_the_page_is_known_from_the_settings_or_the_chart(tmp_path: Path) -> None:
    """With tokens in the settings control's rights hold what it needs; without, they stand apart, for the chart."""
    (tmp_path / "tokens").write_text("0123456789abcdef act", encoding="utf-8")
    control = {"tokens_file": str(tmp_path / "tokens")}
    found = [deployment(tmp_path, **more)["users"] for more in ({}, {"control": control})]
    without, with_tokens = ({user["name"]: user for user in users}["shop-control"] for users in found)
    assert with_tokens["acls"] == [*without["acls"], *without["acting"]]
    assert all("acting" not in user for users in found for user in users if user["name"] != "shop-control")


def test_a_long_name_ends_with_a_hash_and_stays_its_own() -> None:
    """A label has 63 characters, of which the release takes some."""
    longs = [short(f"worker.{'m' * 60}-{end}") for end in "ab"]
    assert longs[0] != longs[1]
    assert all(len(name) <= 40 for name in longs)
    assert short("worker.svc") == "worker-svc"
