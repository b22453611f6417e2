"""The compose file and the Dockerfile say what the command line and the package understand."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.cli.run import EXAMPLES
from deploy.config.configuration import load
from deploy.config.settings import ROLES
from deploy.process.installed import absent
from tests.prometheus import program
from workers.extras import EXTRAS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))[
    "services"
]
WORKERS = [name for name in SERVICES if name.startswith("worker-")]
RUNNING = [*(role for role in ROLES if role != "worker"), *WORKERS]
MONITORING = ROOT / "deploy" / "monitoring"
OURS = sorted(SERVICES.keys() - {"kafka", "redis", "prometheus", "grafana"})
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_every_role_has_a_service_of_its_own() -> None:
    """One service runs one role, and is called after it; setup runs none."""
    for name in RUNNING:
        assert SERVICES[name]["command"][:3] == ["run", "--role", name.partition("-")[0]]
    assert set(OURS) == {*RUNNING, "setup"}


def test_every_model_has_a_service_of_its_own() -> None:
    """They are the models of the example in `skysail run --help`, and differ in nothing else."""
    example = yaml.safe_load(EXAMPLES.partition("lists them all:\n")[2])
    assert sorted(WORKERS) == sorted(f"worker-{name}" for name in example["models"])
    for name in WORKERS:
        assert SERVICES[name]["command"][3:] == ["--model", name.removeprefix("worker-")]
        assert SERVICES[name] | {"command": []} == SERVICES[WORKERS[0]] | {"command": []}


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_takes_every_command(name: str) -> None:
    """Verbs and options of the services exist; asking for help instead of running shows it."""
    command = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in SERVICES[name]["command"]]
    assert CliRunner().invoke(skysail, [*command, "--help"]).exit_code == 0


@pytest.mark.parametrize("name", OURS)
def test_the_settings_take_every_variable(name: str) -> None:
    """The environment of a service leads to the brokers of the file, by keys that exist."""
    settings = load(environment=SERVICES[name]["environment"])
    assert settings.kafka.bootstrap == "kafka:9092"
    assert settings.redis.url == "redis://redis:6379/0"


def test_roles_wait_for_the_topics_and_the_topics_for_the_services() -> None:
    """Nothing starts against a broker that is not healthy, or before its topics are there."""
    assert {key: need["condition"] for key, need in SERVICES["setup"]["depends_on"].items()} == {
        "kafka": "service_healthy",
        "redis": "service_healthy",
    }
    assert all("test" in SERVICES[service]["healthcheck"] for service in ("kafka", "redis"))
    for name in RUNNING:
        assert SERVICES[name]["depends_on"] == {"setup": {"condition": "service_completed_successfully"}}


def test_kafka_is_its_own_controller_and_creates_no_topics_by_itself() -> None:
    """KRaft on one node; a misspelt topic is an error, not a new topic with one partition."""
    environment = SERVICES["kafka"]["environment"]
    assert SERVICES["kafka"]["image"].startswith("apache/kafka:4.")
    assert environment["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://kafka:9092"
    assert environment["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_nothing_is_published_beyond_this_machine() -> None:
    """Broker, Redis and page have no log-in: every published port is on the loopback address."""
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_services_read_the_files_where_the_image_starts() -> None:
    """Relative paths of the settings file mean the same in the container as beside it."""
    (home,) = re.findall(r"^WORKDIR (/home/\S+)$", DOCKERFILE, re.MULTILINE)
    targets = [volume["target"] for volume in SERVICES["worker-svc"]["volumes"]]
    assert targets == [f"{home}/skysail.yaml", f"{home}/models"]


def test_the_image_holds_every_package() -> None:
    """A package that the Dockerfile does not copy would be missing in the image alone."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert packages <= set(re.findall(r"^COPY (\w+) \1$", DOCKERFILE, re.MULTILINE))


def test_the_image_is_built_with_a_compiler_and_not_without_the_extensions() -> None:
    """An installation without a compiler works, and is slow: the build says so."""
    build, _, final = DOCKERFILE.rpartition("\nFROM ")
    assert re.search(r"apt-get install .*\bgcc\b", build)
    check = "cd / && /opt/skysail/bin/python -P -m deploy.process.installed"
    assert re.search(r"^COPY .*\bpyproject.toml\b.*\bsetup.py\b", build, re.MULTILINE)
    assert build.index("pip install") < build.index(check)
    assert "gcc" not in final


def test_an_extension_that_was_not_built_is_named() -> None:
    """Python beside it does not count."""
    assert absent(["schemas.codec", "schemas.no_such_extension"]) == ["schemas.codec", "schemas.no_such_extension"]


def test_the_image_installs_what_is_measured_and_extras_that_exist() -> None:
    """Exact versions; the extras of the compose file are those of the image."""
    assert "--constraint deploy/constraints.txt" in DOCKERFILE
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()
    assert SERVICES["setup"]["build"]["args"]["EXTRAS"] == f"${{EXTRAS:-{extras}}}"


def test_no_container_runs_as_root() -> None:
    """The image ends as a user of its own."""
    assert re.search(r"^USER skysail$", DOCKERFILE, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_container_can_gain_rights(name: str) -> None:
    """Whoever breaks into one has what its user has, and where it needs to write nothing, writes nothing."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name != "kafka")


def test_redis_wants_the_password_that_the_roles_say() -> None:
    """It has no default, and stands in no command line of the host."""
    password = SERVICES["selection"]["environment"]["SKYSAIL_REDIS__PASSWORD"]
    assert password.startswith("${REDIS_PASSWORD:?")
    assert SERVICES["redis"]["environment"]["REDISCLI_AUTH"] == password
    assert '--requirepass "$$REDISCLI_AUTH"' in SERVICES["redis"]["command"][-1]


@pytest.mark.parametrize(("file", "command"), [("rules.yaml", "rules"), ("dashboard.json", "dashboard")])
def test_prometheus_and_grafana_are_given_what_the_command_prints(file: str, command: str) -> None:
    """Who changes a panel or a rule writes it again."""
    printed = CliRunner().invoke(skysail, ["metrics", command]).output
    written = (MONITORING / file).read_text(encoding="utf-8")
    assert written == printed, f"run: skysail metrics {command} > deploy/monitoring/{file}"


def test_prometheus_scrapes_every_role_where_it_listens() -> None:
    """By the names of the services, in the job that the rules look for."""
    (job,) = yaml.safe_load((MONITORING / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert job["job_name"] == "skysail"
    assert set(found["names"]) == set(RUNNING)
    for name in RUNNING:
        settings = load(environment=SERVICES[name]["environment"])
        assert (settings.metrics.host, settings.metrics.port) == ("0.0.0.0", found["port"])


def test_every_file_that_is_mounted_is_there() -> None:
    """Docker would make a folder of its name; and Grafana asks the Prometheus of this file."""
    for name in ("prometheus", "grafana"):
        sources = [volume.split(":") for volume in SERVICES[name]["volumes"] if volume.startswith("./")]
        assert sources
        for source, _, how in sources:
            assert (ROOT / "deploy" / source).is_file()
            assert how == "ro"
    (source,) = yaml.safe_load((MONITORING / "grafana.yaml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((MONITORING / "dashboards.yaml").read_text(encoding="utf-8"))["providers"]
    folder = provider["options"]["path"]
    targets = {volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]}
    assert f"{folder}/skysail.json" in targets
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in targets


@pytest.mark.parametrize(
    ("path", "status", "healthy"), [("/health", 200, True), ("/health", 503, False), ("/", 200, False)]
)
def test_the_image_asks_its_role_whether_it_lives(path: str, status: int, healthy: bool) -> None:
    """Where it shows figures; anything but a 200 at this path is a fault."""

    class Role(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == path else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Role) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert (asked(SKYSAIL_METRICS__PORT=str(server.server_address[1])) == 0) is healthy
        server.shutdown()


def test_a_command_without_figures_is_not_asked() -> None:
    """Such as the setup, which ends by itself."""
    assert asked() == 0


def asked(**environment: str) -> int:
    """Run the image's health check as Docker does; returns its exit code."""
    (found,) = re.findall(r"^HEALTHCHECK .*? CMD (\[.*?\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)
    _, *words = json.loads(found)
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, check=False).returncode


def test_the_image_is_small_and_starts_as_its_own_user() -> None:
    """Two stages: what compiles stays behind. The chart's pods run as the same user."""
    assert len(re.findall(r"^FROM python:\S+-slim", DOCKERFILE, re.MULTILINE)) == 2
    assert "COPY --from=build /opt/skysail /opt/skysail" in DOCKERFILE
    (uid,) = re.findall(r"useradd .*--uid (\d+)", DOCKERFILE)
    helpers = (ROOT / "deploy/k8s/chart/templates/_helpers.tpl").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", helpers)) == {uid}


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    """By its own tool, the rules included."""
    for name in ("prometheus.yaml", "rules.yaml"):
        text = (MONITORING / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/etc/prometheus", str(tmp_path)), encoding="utf-8")
    command = [program("promtool"), "check", "config", str(tmp_path / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rules found" in done.stdout


@pytest.mark.parametrize("folder", ["control", "gateway", "telemetry", "recorder", "runtime"])
def test_the_image_has_the_packages_that_roles_load(folder: str) -> None:
    """The roles of the services run on its default extras; gRPC and Protobuf are asked for by those who want them."""
    files = (ROOT / "streams" / folder).rglob("*.py")
    loaded = {
        module.split(".")[0] for file in files for module in imported(ast.parse(file.read_text(encoding="utf-8")))
    }
    needed = {EXTRAS[module] for module in loaded & EXTRAS.keys()} - {"grpc", "protobuf"}
    found = re.search(r"^ARG EXTRAS=(\S+)", DOCKERFILE, re.MULTILINE)
    assert found is not None
    default = found[1].split(",")
    assert f"${{EXTRAS:-{found[1]}}}" in (ROOT / "deploy/compose.yaml").read_text(encoding="utf-8")
    assert needed <= brought({"worker", *default}), needed


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports by their whole names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def brought(extras: set[str]) -> set[str]:
    """Return extras with those that they bring."""
    found: set[str] = set()
    while extras - found:
        found |= extras
        lines = [line for name in extras for line in PROJECT["project"]["optional-dependencies"][name]]
        extras = {name for line in lines if line.startswith("skysail[") for name in line[8:].rstrip("]").split(",")}
    return found
