"""What is deployed starts a gateway with options that exist, probes it where it answers, and gives it time to end."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from eoslog.cli.gateway import _FILES_OF_STORE, gateway
from eoslog.gateway import group_coordinator, live_gateways, server
from eoslog.gateway.gateway_config import GatewayConfig
from tests.pages import REPOSITORY, fenced_blocks

DEPLOYED = REPOSITORY / "conf/deploy"
UNITS = sorted(DEPLOYED.glob("*.service"))
PAGE = REPOSITORY / "docs/gateway.md"
LONGEST_END_S = sum(
    (
        # It deletes its object, and reads those of the others.
        live_gateways._GRACE_S + live_gateways._PATIENCE_S,
        # It ends the takeovers that have begun, and hands its groups over.
        2 * group_coordinator._GRACE_MS / 1_000,
        # It sends its clients to the others.
        GatewayConfig(linger_ms=0).redirect_ms / 1_000,
        # It answers the requests that it has read, and appends the batches that are left.
        2 * server._GRACE_S,
        # Its three executors end.
        3 * server._THREADS_END_S,
    )
)
"""The longest time that a gateway takes from SIGTERM to its end (s)."""


def unit() -> dict[str, str]:
    """The settings of the gateway's unit."""
    text = (DEPLOYED / "eoslog-gateway.service").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of a command that starts a gateway."""
    name, *options = arguments
    assert name == "gateway"
    return gateway.make_context(name, options).params


def in_pod(arguments: list[str], directory: Path) -> list[str]:
    """The arguments as a container gets them, with files of a directory instead of those of secrets."""
    found = []
    for each in arguments:
        option, _, path = each.partition("=/etc/eoslog/")
        if path:
            file = directory / path.replace("/", "-")
            file.touch()
            each = f"{option}={file}"
        found.append(each.replace("$(POD_NAME)", "eoslog-gateway-0"))
    return found


def pod_of(name: str) -> dict[str, Any]:
    """The pod of the first workload in a manifest."""
    documents = yaml.safe_load_all((DEPLOYED / name).read_text(encoding="utf-8"))
    return next(each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "StatefulSet"))


def gateway_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The container of the gateway."""
    spec = pod["spec"]
    return next(each for each in (*spec.get("initContainers", ()), *spec["containers"]) if each["name"] == "gateway")


def test_the_unit_starts_a_gateway_beside_the_coordinator_and_lets_it_end() -> None:
    found = unit()
    program, *arguments = shlex.split(found["ExecStart"])
    options = parsed(arguments)
    coordinator = (DEPLOYED / "eoslog-coordinator.service").read_text(encoding="utf-8")

    assert program == "/opt/eoslog/bin/eoslog"
    assert options["listen"] == ("127.0.0.1", 9092)
    assert f"--metrics-port {options['metrics_port']}" not in coordinator
    assert int(found["TimeoutStopSec"]) > LONGEST_END_S
    assert int(found["LimitNOFILE"]) >= GatewayConfig(linger_ms=0).max_connections + _FILES_OF_STORE


@pytest.mark.parametrize("setting", ["DynamicUser", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp"])
def test_the_unit_is_as_hard_as_that_of_the_coordinator(setting: str) -> None:
    coordinator = (DEPLOYED / "eoslog-coordinator.service").read_text(encoding="utf-8")

    assert f"\n{setting}={unit()[setting]}\n" in coordinator


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_units(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd on this machine")
    copy = tmp_path / path.name
    copy.write_text(path.read_text(encoding="utf-8").replace("/opt/eoslog/bin/eoslog", sys.executable))

    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["gateway-sidecar.yaml", "gateway.yaml"])
def test_a_pod_starts_a_gateway_that_its_probes_reach(name: str, tmp_path: Path) -> None:
    pod = pod_of(name)
    container = gateway_of(pod)
    options = parsed(in_pod(container["args"], tmp_path))
    (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == "metrics"]

    assert (options["metrics_address"], options["metrics_port"]) == ("0.0.0.0", port)
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port)
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert container["livenessProbe"]["timeoutSeconds"] > 5
    assert pod["spec"]["terminationGracePeriodSeconds"] > LONGEST_END_S
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["resources"]["limits"]["memory"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_a_sidecar_serves_its_pod_only_and_starts_before_the_application() -> None:
    pod = pod_of("gateway-sidecar.yaml")
    container = gateway_of(pod)
    (application,) = pod["spec"]["containers"]
    host, port = parsed(container["args"])["listen"]

    assert (container["restartPolicy"], container["startupProbe"]["httpGet"]["path"]) == ("Always", "/readyz")
    assert host == "127.0.0.1"
    assert {"name": "KAFKA_BOOTSTRAP_SERVERS", "value": f"{host}:{port}"} in application["env"]


def test_clients_of_the_service_reach_each_pod_by_its_own_name_with_tls_and_a_password(tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((DEPLOYED / "gateway.yaml").read_text(encoding="utf-8")))
    (stateful,) = [each for each in documents if each["kind"] == "StatefulSet"]
    services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
    (budget,) = [each["spec"] for each in documents if each["kind"] == "PodDisruptionBudget"]
    pod = pod_of("gateway.yaml")
    container = gateway_of(pod)
    options = parsed(in_pod(container["args"], tmp_path))
    headless = stateful["spec"]["serviceName"]
    labels = pod["metadata"]["labels"]

    assert options["advertise"] == (f"eoslog-gateway-0.{headless}.default.svc.cluster.local", 9092)
    assert (services[headless]["clusterIP"], services[headless]["publishNotReadyAddresses"]) == ("None", True)
    assert [each["ports"][0]["port"] for each in services.values()] == [options["listen"][1]] * 2
    assert all(each["selector"] == labels for each in services.values())
    assert budget["selector"]["matchLabels"] == stateful["spec"]["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] == 1 < stateful["spec"]["replicas"]
    assert all(options[name] for name in ("tls_certificate", "tls_key", "users"))
    (_, wait) = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > int(wait) + LONGEST_END_S
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["spec"]["volumes"]}
    assert {path: secrets[name] for path, name in mounted.items()} == {
        "/etc/eoslog/tls": "eoslog-gateway-tls",
        "/etc/eoslog/users": "eoslog-gateway-users",
    }


def test_the_page_and_the_manifests_tell_how_long_the_end_of_a_gateway_may_take() -> None:
    files = [PAGE, *(DEPLOYED / name for name in ("eoslog-gateway.service", "gateway-sidecar.yaml", "gateway.yaml"))]
    told = [int(each) for path in files for each in re.findall(r"up to (\d+) s", path.read_text(encoding="utf-8"))]

    assert told == [told[0]] * len(files)
    assert told[0] >= LONGEST_END_S


def test_the_image_has_what_a_gateway_needs() -> None:
    text = (DEPLOYED / "Containerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", text)

    assert {"gateway", "prometheus"} <= set(extras.split(","))


def test_the_commands_of_the_page_start_gateways() -> None:
    blocks = [block.replace("\\\n", "") for language in ("bash", "sh") for block in fenced_blocks(PAGE, language)]
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [shlex.split(line)[3:] for line in lines if re.match(r"eoslog --store \S+ gateway", line)]

    assert len(commands) >= 2
    for each in commands:
        parsed(each)
