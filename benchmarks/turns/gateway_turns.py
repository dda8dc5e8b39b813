"""The turns of docs/evidence/conformance/gateway.md: through a gateway in front of vLLM without the plugin.

    .venv-vllm/bin/python benchmarks/turns/gateway_turns.py chat

Findings are counted as for docs/evidence/conformance.md. The results of each API stay in benchmarks/out/conformance-gateway.json.
"""

from __future__ import annotations

import json
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, get_args

from attrs import asdict, evolve, frozen
from turns_pages import ROOT, Played
from vllm_turns import PLAN, Server, Setup, play

from interlock.serving.build import build
from interlock.serving.engines.upstream.gateway import Gateway
from interlock.serving.engines.upstream.upstreams import upstream_of
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings, UpstreamApi, UpstreamSettings
from interlock.serving.tools.hosting import ToolServers

sys.path.append(str(ROOT / "benchmarks"))

from runs import described, one_of, this_run

PAGE: Final = ROOT / "docs" / "evidence" / "conformance" / "gateway.md"
RESULTS: Final = ROOT / "benchmarks" / "out" / "conformance-gateway.json"

INTRODUCTION: Final = """\
# Conformance through a gateway

The turns of [the conformance](../conformance.md), played on {build} without the plugin, through
a [gateway](../../guides/gateway.md) in front of it, once for each `--upstream-api`. `benchmarks/turns/gateway_turns.py chat`
plays them again through one of these, and writes this page.

A gateway repairs the order and the fields of a stream. It cannot restore what vLLM's parsers lose; only through `vllm` does it
read the tokens itself. A turn *fails* if vLLM refuses the request or its answer ends with an error: the response then has the
status `failed`, and its stream is still legal. A turn *differs* if it does not fail, but its text, its reasoning or its calls are
not those that the model wrote. The errors and deviations are those of [`interlock check`](../../guides/check.md) on all streams,
also of failed turns; a stream without a terminal event or `[DONE]` is an error here.

Through `vllm`, the turn *an engine that gives up: its grammar allows one call (parsers)* differs. The model begins a second
call, which vLLM's grammar of the tools forbids, so the engine writes `!` and gives up. A gateway that reads tokens sends no tools
with its request: there is no such grammar, the model writes both calls, and Interlock's parser drops the second one, because the
request has `"parallel_tool_calls": false`. That content is right for the request, but not the one that the turn expects.

{recorded}
"""

CAUSE: Final = """
Each turn is played twice, streamed and not, and the gateway reads a stream of vLLM both times. R19 compares the two answers, so
it counts legal streams too, if vLLM's two differ. Two things in vLLM depend on how many tokens a step of the engine has:
whether the DeepSeek parsers leave `<think>` in the reasoning, and whether and where an exception ends a stream. So the turns that
are counted differ from run to run.
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


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of docs/evidence/conformance/gateway.md."""
    build = f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})"
    yield INTRODUCTION.format(build=build, recorded="\n".join(dict.fromkeys(str(kept["run"]) for kept in results.values())))
    yield "| `--upstream-api` | turns | as written | differ | fail | errors | deviations |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    played = {api: {name: Played(**turn) for name, turn in kept["turns"].items()} for api, kept in results.items()}
    for api, by_name in played.items():
        turns = by_name.values()
        failed = sum(turn.refused or turn.failed for turn in turns)
        different = sum(bool(turn.other_content) and not (turn.refused or turn.failed) for turn in turns)
        open_ends = sum(not (turn.refused or (turn.ended and turn.marked)) for turn in turns)
        errors = sum(sum(turn.errors.values()) for turn in turns) + open_ends
        deviations = sum(sum(turn.deviations.values()) for turn in turns)
        yield f"| `{api}` | {len(turns)} | {len(turns) - failed - different} | {different} | {failed} | {errors} | {deviations} |"
    yield CAUSE
    yield "| `--upstream-api` | turn | error |"
    yield "|---|---|---|"
    for api, by_name in played.items():
        for name, turn in by_name.items():
            has_end = turn.refused or (turn.ended and turn.marked)
            if turn.errors or not has_end:
                yield f"| `{api}` | {name} | {turn.first if turn.errors else 'the stream has no end'} |"


def main() -> None:
    """Measure the APIs that the command line names, keep the results, and write the page."""
    names = get_args(UpstreamApi)
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("apis", nargs="*", type=one_of(names), default=["chat"], help=", ".join(names))
    apis: list[str] = parser.parse_args().apis
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for api in apis:
        run = this_run()
        results[api] = {"run": described(run), "turns": {name: asdict(turn) for name, turn in measure(api).items()}}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results))
        PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
