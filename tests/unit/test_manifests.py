"""Manifests: what Kubernetes, its MPI operator, Docker and Docker Compose would refuse.

No cluster runs here. Pods are held against Kubernetes's own schemas; the operator's fields against
FIELDS, which was written from its definition of MPIJob, v2beta1.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from tfhybrid.cli.main import app
from tfhybrid.stream.queues.kafka_queue import settings_of
from tfhybrid.stream.stream_settings import StreamSettings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PROJECT = ROOT / "examples" / "project"
KUBERNETES = PROJECT / "kubernetes"
JOB = KUBERNETES / "mpijob.yaml"
VERSIONS = ["1.27", "1.34"]
_COUNT = {"type": "integer", "minimum": 0}
_REPLICA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["template"],
    "properties": {
        "replicas": _COUNT,
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {"type": "object"},
    },
}
FIELDS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["mpiReplicaSpecs"],
    "properties": {
        "slotsPerWorker": {"type": "integer", "minimum": 1},
        "sshAuthMountPath": {"type": "string"},
        "mpiImplementation": {"enum": ["OpenMPI", "Intel", "MPICH"]},
        "mpiReplicaSpecs": {
            "type": "object",
            "additionalProperties": False,
            "required": ["Launcher", "Worker"],
            "properties": {"Launcher": _REPLICA, "Worker": _REPLICA},
        },
        "runPolicy": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "activeDeadlineSeconds": _COUNT,
                "backoffLimit": _COUNT,
                "cleanPodPolicy": {"enum": ["Running", "All", "None"]},
                "schedulingPolicy": {"type": "object"},
                "suspend": {"type": "boolean"},
                "ttlSecondsAfterFinished": _COUNT,
            },
        },
    },
}


@pytest.fixture
def job() -> dict[str, Any]:
    return yaml.safe_load(JOB.read_text())


@pytest.fixture
def worker(job: dict[str, Any]) -> dict[str, Any]:
    return job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]


def test_the_operator_knows_every_field(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    jsonschema.validate(job["spec"], FIELDS)


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field_of_the_pods(job, role, version) -> None:
    template = job["spec"]["mpiReplicaSpecs"][role]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}
    kubernetes_validate.validate(pod, version, strict=True)
    pod["spec"]["containers"][0]["imagePullPolice"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, version, strict=True)


def test_ranks_and_names_agree(job: dict[str, Any], worker: dict[str, Any]) -> None:
    spec = job["spec"]
    ranks = spec["slotsPerWorker"] * spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert f"horovodrun --gloo -np {ranks} --hostfile $hosts" in launcher["args"][-1]
    (rule,) = worker["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = rule["labelSelector"]["matchLabels"]
    assert labels["training.kubeflow.org/job-name"] == job["metadata"]["name"]
    plan = job["metadata"]["annotations"]["tfhybrid/plan"]
    assert f"--hosts {spec['mpiReplicaSpecs']['Worker']['replicas']} " in plan
    assert plan.endswith(f"--ranks {spec['slotsPerWorker']}")


def test_the_shared_memory_is_as_large_as_planned(job, worker) -> None:
    arguments = shlex.split(job["metadata"]["annotations"]["tfhybrid/plan"])
    planned = json.loads(CliRunner().invoke(app, ["plan", *arguments, "--json"]).stdout)
    shm = worker["volumes"][0]["emptyDir"]
    assert shm["medium"] == "Memory"
    assert worker["containers"][0]["volumeMounts"][0]["mountPath"] == "/dev/shm"
    room = gibibytes(shm["sizeLimit"])
    assert planned["peak"] <= room <= 1.5 * planned["peak"]
    limit = gibibytes(worker["containers"][0]["resources"]["limits"]["memory"])
    assert limit == room + job["spec"]["slotsPerWorker"] * gibibytes("4Gi")


@pytest.fixture
def others() -> dict[str, dict[str, Any]]:
    """The other manifests by kind."""
    files = (KUBERNETES / "output.yaml", KUBERNETES / "network.yaml")
    return {each["kind"]: each for file in files for each in yaml.safe_load_all(file.read_text())}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_the_other_manifests(others, version) -> None:
    assert sorted(others) == ["NetworkPolicy", "PersistentVolumeClaim", "Service"]
    assert {file.name for file in KUBERNETES.iterdir()} == {
        *("mpijob.yaml", "output.yaml", "network.yaml")
    }
    for each in others.values():
        kubernetes_validate.validate(each, version, strict=True)
    others["NetworkPolicy"]["spec"]["ingres"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(others["NetworkPolicy"], version, strict=True)


@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_pods_have_no_privileges(job: dict[str, Any], role: str) -> None:
    """As the restricted profile of Kubernetes's Pod Security Standards wants it."""
    pod = job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 1000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume.keys() - {"name"}}
    assert kinds <= {"emptyDir", "persistentVolumeClaim"}


def test_checkpoints_outlive_the_pods_and_are_where_the_job_saves(job, worker, others) -> None:
    claim = others["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (volume,) = (each for each in worker["volumes"] if "persistentVolumeClaim" in each)
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = (
        each for each in worker["containers"][0]["volumeMounts"] if each["name"] == volume["name"]
    )
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    script = re.search(r"python (\S+)\n", launcher["args"][-1])[1]
    folder = re.search(r"^WORKDIR (\S+)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)[1]
    directory = re.search(r'CHECKPOINTS, \w+ = "(\S+)/', (PROJECT / script).read_text())[1]
    assert f"{folder}/{directory}" == mount["mountPath"]


def test_rank_0_answers_prometheus_and_the_network_lets_it(job, worker, others) -> None:
    launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in launcher["env"]}
    port = int(environment["TFHYBRID_METRICS_PORT"])
    assert environment["TFHYBRID_METRICS_HOST"] == "0.0.0.0"  # network.yaml says who may connect
    assert worker["containers"][0]["ports"] == [{"name": "metrics", "containerPort": port}]
    service = others["Service"]
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    assert service["spec"]["ports"][0]["port"] == port
    labels = {"training.kubeflow.org/job-name": job["metadata"]["name"]}
    assert labels.items() < service["spec"]["selector"].items()
    policy = others["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    peers, prometheus = policy["ingress"]
    assert peers == {"from": [{"podSelector": {"matchLabels": labels}}]}
    assert prometheus["ports"] == [{"protocol": "TCP", "port": port}]
    assert {"to": [{"podSelector": {"matchLabels": labels}}]} in policy["egress"]


def test_the_dockerfile_of_the_project_builds_on_the_image_that_is_built_here(job) -> None:
    """No Docker runs here: every instruction is one that is known to work on that image."""
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if line and line[0] != "#"]
    assert instructions == [
        ["FROM", "tfhybrid:cpu"],
        ["WORKDIR", "/home/tfhybrid/project"],
        ["COPY", "--chown=tfhybrid:tfhybrid . ."],
        ["RUN", "mkdir -p output"],
    ]
    base = (DOCKER / "cpu" / "Dockerfile").read_text()
    assert re.search(r"^# .*docker build -t tfhybrid:cpu ", base, re.MULTILINE)
    assert (
        "useradd --create-home --uid 1000 --shell /bin/bash tfhybrid"
        in (DOCKER / "account").read_text()
    )
    name = job["metadata"]["name"]
    assert f"docker build -t {name} ." in "\n".join(lines)
    for role in job["spec"]["mpiReplicaSpecs"].values():
        assert role["template"]["spec"]["containers"][0]["image"] == f"{name}:latest"


def test_prometheus_scrapes_the_ports_that_the_readme_names() -> None:
    scraped = yaml.safe_load((PROJECT / "dashboards" / "prometheus.yaml").read_text())
    assert scraped.keys() == {"global", "scrape_configs"}
    readme = (PROJECT / "README.md").read_text()
    for job, port in (("training", 9464), ("stream", 9465)):
        (targets,) = (
            each["static_configs"] for each in scraped["scrape_configs"] if each["job_name"] == job
        )
        assert targets == [{"targets": [f"localhost:{port}"]}]
        assert str(port) in readme


def test_the_stream_of_the_project_trains_its_model() -> None:
    settings = StreamSettings.read(PROJECT / "stream.yaml")
    ((model, queues),) = settings.routes["models"].items()
    assert f'model="{model}"' in (PROJECT / "train_online.py").read_text()
    assert settings.publish.keys() == {model}
    assert {*queues} == {*settings.routes["queues"].values()}


def gibibytes(text: str) -> int:
    return int(re.fullmatch(r"(\d+)Gi", text)[1]) << 30


def test_compose_starts_the_job_on_hosts_that_are_healthy() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    job = services.pop("job")
    hosts = dict(re.findall(r"(\w+):(\d+)", job["command"]))
    assert set(hosts) == set(services) == set(job["depends_on"])
    assert f"-np {sum(map(int, hosts.values()))} " in job["command"]
    for name, service in services.items():
        assert (service["hostname"], service["shm_size"]) == (name, "2gb")
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    dockerfile = (DOCKER / "cpu" / "Dockerfile").read_text()
    assert "HEALTHCHECK" in dockerfile
    assert all(service["image"] in dockerfile for service in services.values())


def test_compose_runs_the_roles_of_the_stream_that_it_mounts() -> None:
    folder = DOCKER / "stream"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    settings = StreamSettings.read(folder / "stream.yaml")
    home = Path("/home/tfhybrid")
    addresses = {settings.provider: "provider", settings.sync: "sync"}
    assert {address.split(":")[0]: role for address, role in addresses.items()} == {
        services[role]["hostname"]: role for role in addresses.values()
    }
    (queue,) = map(settings.queue_address, set(settings.routes["queues"].values()))
    servers, _, _ = settings_of(queue)
    assert servers in services["broker"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    for name, service in services.items():
        if name == "broker":
            continue
        mounted = [volume.split(":")[:2] for volume in service["volumes"]]
        targets = {Path(target) for _, target in mounted}
        assert targets == {home / "stream.yaml", Path(settings.token_file), Path(settings.folder)}
        program, *arguments = shlex.split(service["command"])
        if program == "tfhybrid":
            assert CliRunner().invoke(app, [*arguments[:2], "--help"]).exit_code == 0
        else:
            assert (DOCKER.parent / arguments[0]).is_file()
    assert "/home/tfhybrid/stream\n" in (DOCKER / "account").read_text()
