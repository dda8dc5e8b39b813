"""The turns of docs/evidence/conformance/gateway.md: through a gateway in front of vLLM without the plugin.

    .venv-vllm/bin/python benchmarks/turns/gateway_turns.py chat

Findings are counted as for docs/evidence/conformance.md. The results of each API stay in benchmarks/out/conformance-gateway.json.
"""

from __future__ import annotations

import json
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from attrs import asdict, evolve, frozen
from vllm_turns import PLAN, ROOT, Played, Server, Setup, play

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamSettings
from interlock.serving.tools.hosting import ToolServers

PAGE: Final = ROOT / "docs" / "evidence" / "conformance" / "gateway.md"
RESULTS: Final = ROOT / "benchmarks" / "out" / "conformance-gateway.json"

INTRODUCTION: Final = """\
# Conformance through a gateway

The turns of [the conformance](../conformance.md), played on {build} without the plugin, through
a [gateway](../../guides/gateway.md) in front of it. `benchmarks/turns/gateway_turns.py chat` plays them again through one API of
the upstream, and writes this page. A turn that vLLM refuses, or in which it fails, is a failed response and no finding.

What vLLM's own parser of `deepseek_v32` makes of a quoted marker depends on how the tokens arrive. On a busy machine, the stream
of that turn once differed from the whole response through `chat` and `responses` (R19); when repeated, it did not.
"""


@frozen
class Front:
    """A gateway in the place of the server that plays the turns."""

    setup: Setup
    url: str


def family_of(group: str) -> str | None:
    """Return the family in which the turns of a group are written; None for harmony."""
    return {"harmony": None, "text with markers": "hermes"}.get(group, group.strip("`"))


@contextmanager
def front(server: Server, api: str, group: str) -> Iterator[Front]:
    """Serve a gateway in front of a server, with its tools; tokens of a model are read by its family."""
    tools = {"code_interpreter": "python", "web_search": "browser"} if server.setup.tools else {}
    hosted = {kind: server.tool_url(name) for kind, name in tools.items()}
    family = family_of(group) if api == "vllm" else None
    engine = Gateway([upstream_of(UpstreamSettings(url=server.url, api=api, family=family))], dict.fromkeys(hosted, ""))
    with ServerThread(build(Settings(), engine, tools=ToolServers(hosted))) as url:
        yield Front(server.setup, url)


def measure(api: str) -> dict[str, Played]:
    """Play all turns through an API."""
    played: dict[str, Played] = {}
    for group, setup, turns in PLAN:
        with Server(evolve(setup, plugin=False)) as server, front(server, api, group) as gateway:
            for turn in turns:
                result = played[turn.name] = play(gateway, turn, group)
                print(api, turn.name, result.errors, result.deviations, flush=True)
    return played


def page(results: Mapping[str, Mapping[str, Mapping[str, object]]]) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance/gateway.md."""
    yield INTRODUCTION.format(build=f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})")
    yield "| API | group | turns | errors | deviations | streams without a terminal event or `[DONE]` |"
    yield "|---|---|---:|---:|---:|---:|"
    for api, turns in results.items():
        for group in dict.fromkeys(turn["group"] for turn in turns.values()):
            of_group = [turn for turn in turns.values() if turn["group"] == group]
            errors = sum(sum(Counter(turn["errors"]).values()) for turn in of_group)
            deviations = sum(sum(Counter(turn["deviations"]).values()) for turn in of_group)
            open_ends = sum(not (turn["ended"] and turn["marked"]) for turn in of_group)
            yield f"| `{api}` | {group} | {len(of_group)} | {errors} | {deviations} | {open_ends} |"


def main() -> None:
    """Measure the APIs that the command line names, keep the results, and write the page."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for api in sys.argv[1:] or ["chat"]:
        results[api] = {name: asdict(turn) for name, turn in measure(api).items()}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results))
        PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
