"""The chart, rendered by Helm, is what Kubernetes, KEDA, Strimzi and the roles take. No cluster is needed."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config.configuration import load
from tests.manifests import CHART, check, helm, render
from tests.unit.deploy.test_k8s_values import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

MINE: dict[str, Any] = {
    "redis": {"url": "rediss://redis:6380/0", "secret": "redis-auth"},
    "models": {"volume": {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}},
    "gateway": {"tokens": {"secret": "tokens"}, "certificate": {"secret": "gateway-tls"}},
    "control": {"tokens": {"secret": "page-tokens"}},
    "record": {"volume": {"persistentVolumeClaim": {"claimName": "trace"}}},
    "metrics": {"podMonitor": True, "prometheusRule": True, "labels": {"release": "prometheus"}},
    "byRole": {"worker-svc": {"nodeSelector": {"disk": "fast"}}, "selection": {"replicas": 2}},
    "networkPolicy": {"gatewayFrom": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]},
}
PLAIN: dict[str, Any] = {"kafka": {"secure": False}, "strimzi": {"enabled": False}, "keda": {"enabled": False}}
Manifests = list[dict[str, Any]]


def rendered(folder: Path, values: dict[str, Any], **changed: Any) -> Manifests:
    """Render the chart for the settings of these tests."""
    file, mine, deployment = folder / "skysail.yaml", folder / "mine.yaml", folder / "deployment.yaml"
    file.write_text(json.dumps(SETTINGS | changed), encoding="utf-8")
    mine.write_text(json.dumps(values), encoding="utf-8")
    deployment.write_text(CliRunner().invoke(skysail, ["k8s", "values", "--config", str(file)]).stdout)
    return render(deployment, mine)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """Return what the defaults render to."""
    return rendered(tmp_path_factory.mktemp("usual"), {})


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """Return what comes with everything switched on."""
    roles = [*SETTINGS["roles"], "record"]  # type: ignore[misc] # it is a list
    return rendered(tmp_path_factory.mktemp("full"), MINE, roles=roles)


def of(manifests: Manifests, kind: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of a kind, by name."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def pods(manifests: Manifests) -> dict[str, dict[str, Any]]:
    """Return the specification of every pod."""
    return {name: one["spec"]["template"]["spec"] for kind in ("Deployment", "Job")
            for name, one in of(manifests, kind).items()}  # fmt: skip


def test_every_manifest_is_valid(usual: Manifests, full: Manifests, tmp_path: Path) -> None:
    """Also without a log-in, Strimzi and KEDA. A key that no schema names fails, too."""
    plain = rendered(tmp_path, PLAIN)
    for manifest in (*usual, *full, *plain):
        check(manifest)
    assert {"PodMonitor", "PrometheusRule", "ScaledObject", "KafkaTopic", "KafkaUser"} <= {m["kind"] for m in full}
    assert not {"KafkaTopic", "KafkaUser", "ScaledObject", "TriggerAuthentication"} & {m["kind"] for m in plain}
    for manifests in (usual, full, plain):
        names = [(one["kind"], one["metadata"]["name"]) for one in manifests]
        assert len(names) == len(set(names))


def test_no_pod_has_more_than_it_needs(full: Manifests) -> None:
    """No root, no capability, nothing to write but its own empty folders, no token of the cluster, bounded memory."""
    for name, pod in pods(full).items():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False  # SKYSAIL_CONTROL_PORT of a release `skysail` would be no setting
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert writable - ({"/var/lib/skysail"} if "record" in name else set()) == {
            "/home/skysail/.skysail",
            "/tmp",
        }
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_redis_has_a_user_for_each_role_that_needs_it_and_no_other_pod_a_password(tmp_path: Path) -> None:
    """The users are those that `skysail topics acl --as redis` prints."""
    printed = CliRunner().invoke(skysail, ["topics", "acl", "--as", "redis"], env={"SKYSAIL_PREFIX": "shop"}).output
    roles = [user.removeprefix("shop.") for user in re.findall(r"SETUSER (\S+)", printed)]
    users = {role: f"redis-{role}" for role in roles}
    found = pods(rendered(tmp_path, MINE | {"redis": {"url": "rediss://redis:6380/0", "users": users}}))
    who: dict[str, str] = {}
    for name, pod in found.items():
        (container,) = pod["containers"]
        url = next(one["value"] for one in container["env"] if one["name"] == "SKYSAIL_REDIS__URL")
        secrets = [volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "redis"]
        is_told = any(one["name"] == "SKYSAIL_REDIS__PASSWORD_FILE" for one in container["env"])
        is_mounted = any(mount["name"] == "redis" for mount in container["volumeMounts"])
        user, _, place = url.removeprefix("rediss://").rpartition("@")
        assert (is_told, is_mounted, place) == (bool(user), bool(user), "redis:6380/0")
        assert secrets == ([f"redis-{user.removeprefix('shop.')}"] if user else [])
        who |= {"setup" if "setup" in name else name.removeprefix("shop-"): user} if user else {}
    assert who == {"selection": "shop.selection", "learner": "shop.learner", "setup": "shop.operator"}


def test_the_command_line_and_the_settings_take_what_pods_say(full: Manifests, tmp_path: Path) -> None:
    """Verbs, options, and every variable, with secrets in files; the settings are the file of the ConfigMap."""
    (settings,) = [one["data"]["skysail.yaml"] for one in of(full, "ConfigMap").values()]
    (tmp_path / "skysail.yaml").write_text(settings, encoding="utf-8")
    for secret in ("kafka/password", "redis/password", "tokens/tokens", "certificate/tls.crt", "certificate/tls.key"):
        (tmp_path / secret).parent.mkdir(exist_ok=True)
        (tmp_path / secret).write_text("0123456789abcdef *", encoding="utf-8")
    for name, pod in pods(full).items():
        (container,) = pod["containers"]
        assert CliRunner().invoke(skysail, [*container["args"], "--help"]).exit_code == 0
        given = {one["name"]: one["value"].replace("/run/secrets", str(tmp_path)) for one in container["env"]}
        found = load(tmp_path / "skysail.yaml", given)
        assert found.kafka.properties["security_protocol"] == "SASL_SSL"
        user = "shop-operator" if "setup" in name else name
        assert found.kafka.properties["sasl_plain_username"] == user
        (secret, _) = next(v["projected"]["sources"] for v in pod["volumes"] if v["name"] == "kafka")
        assert secret["secret"]["name"] == user
        assert found.redis.url == "rediss://redis:6380/0"
        assert found.prefix == "shop"
        its = {"shop-gateway": found.gateway.tokens, "shop-control": found.control.tokens}
        assert {who for who, tokens in its.items() if tokens is not None} == {name} & its.keys()


def test_every_role_is_asked_whether_it_lives_and_is_ready(full: Manifests) -> None:
    """At its own port; the gateway at its door, which speaks TLS here."""
    for name, one in of(full, "Deployment").items():
        (container,) = one["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for probe, path in (("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/ready")):
            asked = container[probe]["httpGet"]
            assert (asked["path"], ports[asked["port"]]) == (path, 8080 if name == "shop-gateway" else 9108)
            assert asked.get("scheme") == ("HTTPS" if name == "shop-gateway" else None)
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert environment["SKYSAIL_METRICS__PORT"] == "9108"


def test_roles_are_scaled_by_what_waits(full: Manifests) -> None:
    """Workers by estimated wait and lag, up to their partitions; who runs once, or as often as planned, is not."""
    scaled = of(full, "ScaledObject")
    deployments = of(full, "Deployment")
    assert deployments.keys() - scaled.keys() == {"shop-control", "shop-record"}
    for name, one in scaled.items():
        assert "replicas" not in deployments[name]["spec"]  # or every upgrade would undo what KEDA did
        assert one["spec"]["scaleTargetRef"]["name"] == name
    worker = scaled["shop-worker-svc"]["spec"]
    assert (worker["minReplicaCount"], worker["maxReplicaCount"]) == (2, 8)
    wait, lag = worker["triggers"]
    assert wait["metadata"]["query"] == 'max by (model) (skysail_estimated_wait_seconds{model="svc"})'
    assert wait["metricType"] == "Value"
    assert lag["metadata"]["topic"] == "shop.models.svc.queries"
    login = of(full, "TriggerAuthentication")[lag["authenticationRef"]["name"]]["spec"]["secretTargetRef"]
    assert {"parameter": "password", "name": "shop-worker-svc", "key": "password"} in login
    assert scaled["shop-selection"]["spec"]["minReplicaCount"] == 2


def test_no_two_pods_of_a_role_are_evicted_at_once(full: Manifests) -> None:
    """What runs once can always be moved."""
    budgets = of(full, "PodDisruptionBudget")
    assert budgets.keys() == of(full, "Deployment").keys() - {"shop-control", "shop-record"}
    for name, one in budgets.items():
        labels = of(full, "Deployment")[name]["spec"]["template"]["metadata"]["labels"]
        assert one["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_nothing_but_the_gateway_and_the_figures_can_be_reached(full: Manifests) -> None:
    """The page has no log-in: it is for `kubectl port-forward`."""
    open_ports = {port["port"] for one in of(full, "NetworkPolicy").values()
                  for rule in one["spec"]["ingress"] for port in rule["ports"]}  # fmt: skip
    assert open_ports == {"metrics", "http"}


def test_topics_and_users_are_those_of_the_command(usual: Manifests, tmp_path: Path) -> None:
    """`skysail k8s strimzi` says the same without the chart; numbers stay whole."""
    file = tmp_path / "skysail.yaml"
    file.write_text(json.dumps(SETTINGS), encoding="utf-8")
    said = CliRunner().invoke(skysail, ["k8s", "strimzi", "--cluster", "kafka", "--config", str(file)]).stdout
    for kind in ("KafkaTopic", "KafkaUser"):
        alone = of([*yaml.safe_load_all(said)], kind)
        assert {name: one["spec"] for name, one in alone.items()} == {
            name: one["spec"] for name, one in of(usual, kind).items()
        }
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in of(usual, "KafkaTopic").values()} == {
        "keep"
    }


def test_control_may_send_letters_again_once_somebody_has_a_token(usual: Manifests, full: Manifests) -> None:
    """The Secret with the page's tokens is a value of the chart, and so are the rights that come with it."""
    acls = [of(each, "KafkaUser")["shop-control"]["spec"]["authorization"]["acls"] for each in (usual, full)]
    before, after = ({one["resource"]["name"]: one["operations"] for one in each} for each in acls)
    names = {f"shop.{name}" for name in ("queries", "feedback", "queries.dlq", "feedback.dlq", "mapping.dlq")}
    assert after == before | {name: ["Write"] for name in names}
    assert not names & before.keys()


def test_users_of_clients_have_their_quotas(tmp_path: Path) -> None:
    """Whole numbers, as Strimzi takes them; roles have none."""
    found = of(rendered(tmp_path, {}, quotas={"asker": {"write_kib": 4096, "read_kib": 1e6}}), "KafkaUser")
    for one in found.values():
        check(one)
    spec = found["shop-asker"]["spec"]
    assert spec["quotas"] == {"producerByteRate": 4_194_304, "consumerByteRate": 1_024_000_000}
    assert [name for name, one in found.items() if "quotas" in one["spec"]] == ["shop-asker"]


def test_other_settings_are_another_setup_and_new_pods(usual: Manifests, tmp_path: Path) -> None:
    """A Job cannot be changed, and a pod does not read its settings again."""
    other = rendered(tmp_path, {}, partitions=8)
    assert of(usual, "Job").keys() != of(other, "Job").keys()
    marks = [of(each, "Deployment")["shop-selection"]["spec"]["template"]["metadata"]["annotations"]["skysail/settings"]
             for each in (usual, other)]  # fmt: skip
    assert marks[0] != marks[1]


@pytest.mark.parametrize(
    "mine", [{"image": {"tag": "9.9"}}, {"redis": {"url": "redis://other:6379/0"}}], ids=["image", "redis"]
)
def test_an_upgrade_of_anything_in_the_setup_is_another_job(
    usual: Manifests, tmp_path: Path, mine: dict[str, Any]
) -> None:
    """Kubernetes refuses another pod under the name of a Job that is there; what is done goes after a day."""
    other = rendered(tmp_path, mine)
    assert of(usual, "Job").keys() != of(other, "Job").keys()
    (job,) = of(usual, "Job").values()
    assert job["spec"]["ttlSecondsAfterFinished"] > 0


def test_models_in_the_image_are_not_hidden(usual: Manifests) -> None:
    """What pods write lies beside them."""
    for pod in (*of(usual, "Deployment").values(), *of(usual, "Job").values()):
        (container,) = pod["spec"]["template"]["spec"]["containers"]
        paths = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert not any("/home/skysail/models/svc-1".startswith(f"{path}/") for path in paths), paths


def test_the_setup_logs_in_as_a_user_that_is_there(tmp_path: Path) -> None:
    """Also where the prefix is so long that names are cut."""
    manifests = rendered(tmp_path, {}, prefix="a" * 50)
    (job,) = of(manifests, "Job").values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (user,) = [one["value"] for one in container["env"] if one["name"].endswith("SASL_PLAIN_USERNAME")]
    assert user in of(manifests, "KafkaUser")


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"kafak": {}}, "kafak"),
        ({"byRole": {"worker": {"replica": 2}}}, "replica"),
        ({"kafka": {"mechanism": "OAUTHBEARER"}}, "mechanism"),
        ({"redis": {"url": "redis://:geheim@redis:6379"}}, "redis"),
        ({"deployment": {}}, "skysail k8s values"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, values: dict[str, Any], word: str) -> None:
    """By the chart's schema, before anything is installed."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        render(mine)
    assert word in caught.value.stderr


def test_a_role_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """What was meant for it would be done nowhere, and nobody would know."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(tmp_path, {"byRole": {"worker-svn": {"replicas": 2}}})
    assert "byRole.worker-svn: there is no such role; there are: " in caught.value.stderr
    assert "worker-svc" in caught.value.stderr


def test_lint_without_a_deployment_says_what_is_missing() -> None:
    """As a pipeline lints charts, without values: an error of a template would say nothing."""
    done = subprocess.run([helm(), "lint", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "write it with `skysail k8s values" in done.stderr


def test_a_role_may_have_an_image_of_its_own(tmp_path: Path) -> None:
    """A worker that needs torch; the others do not pull gigabytes for it."""
    mine = {"image": {"repository": "all", "tag": "1"}, "byRole": {"worker-svc": {"image": {"repository": "torch"}}}}
    images = {name: pod["containers"][0]["image"] for name, pod in pods(rendered(tmp_path, mine)).items()}
    assert images.pop("shop-worker-svc") == "torch:1"
    assert {*images.values()} == {"all:1"}


def test_a_service_of_kafka_may_give_one_log_in(tmp_path: Path) -> None:
    """By its own mechanism, for roles, for the setup and for KEDA; nobody waits for a Secret of Strimzi's."""
    login = {"user": "key-1", "secret": "kafka-login"}
    mine = {"kafka": {"mechanism": "PLAIN", "login": login}, "strimzi": {"enabled": False}}
    manifests = rendered(tmp_path, mine)
    for manifest in manifests:
        check(manifest)
    for pod in pods(manifests).values():
        told = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        sasl = {name.rpartition("SASL_")[2]: value for name, value in told.items() if "SASL_" in name}
        assert (sasl["MECHANISM"], sasl["PLAIN_USERNAME"]) == ("PLAIN", "key-1")
        (volume,) = [one for one in pod["volumes"] if one["name"] == "kafka"]
        assert volume["projected"]["sources"][0]["secret"]["name"] == "kafka-login"
    for scaled in of(manifests, "ScaledObject").values():
        assert {one["metadata"].get("sasl", "plaintext") for one in scaled["spec"]["triggers"]} == {"plaintext"}
    for trigger in of(manifests, "TriggerAuthentication").values():
        assert "kafka-login" in [one["name"] for one in trigger["spec"]["secretTargetRef"]]


def _volumes_of_the_page() -> list[str]:
    page = (CHART.parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    return re.findall(r"\| `(models: \{volume: .*?\})` \|", page)


@pytest.mark.parametrize("values", _volumes_of_the_page())
def test_models_come_from_where_the_page_says(tmp_path: Path, values: str) -> None:
    """Each volume that it shows is one of Kubernetes."""
    found = rendered(tmp_path, yaml.safe_load(values))
    for manifest in found:
        check(manifest)
    for pod in pods(found).values():
        assert "models" in [volume["name"] for volume in pod["volumes"]]


def test_the_page_shows_two_volumes_at_least() -> None:
    """Else the test above would hold of nothing."""
    assert len(_volumes_of_the_page()) >= 2


def test_the_chart_has_the_version_of_the_package() -> None:
    """It runs the image of that version."""
    project = (CHART.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(\S+)"$', project, re.MULTILINE)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == chart["version"] == version


def test_the_page_shows_what_is_rendered(tmp_path: Path) -> None:
    """Its settings and values, taken as they stand, make as many of each as its table says."""
    page = (CHART.parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    settings, mine, trigger = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    found = rendered(tmp_path, yaml.safe_load(mine), **{"worker": {}, **yaml.safe_load(settings)})
    counts = Counter(one["kind"] for one in found)
    for kinds, number in re.findall(r"^\| (\w+(?:, \w+)*) \| (\d+)(?: each)? \|", page, re.MULTILINE):
        for kind in kinds.split(", "):
            assert counts.pop(kind) == int(number), kind
    assert counts.keys() == {"PodMonitor", "PrometheusRule"}
    spec = of(found, "ScaledObject")["shop-worker-svc"]["spec"]
    shown = yaml.safe_load(trigger)
    assert shown["maxReplicaCount"] == spec["maxReplicaCount"]
    for said, its in zip(shown["triggers"], spec["triggers"], strict=True):
        assert said["metadata"].items() <= its["metadata"].items()
