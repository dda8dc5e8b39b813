"""The same scripted turns against vLLM's own routes and Interlock's, on one build; writes docs/evidence/conformance.md.

    .venv-vllm/bin/python benchmarks/turns/vllm_turns.py harmony hermes
    PYTHON_WITH_A_NEWER_VLLM benchmarks/turns/vllm_turns.py next
    .venv-vllm/bin/python benchmarks/turns/vllm_turns.py fixes
    .venv-vllm/bin/python benchmarks/turns/vllm_turns.py --turn "python that says nothing"

Each turn of tests/real_vllm/turns.py is streamed and requested in one piece, through each API, on a server with the plugin and
on one without. Findings of `interlock check` on a stream are counted by rule and severity. R19, M13 or C9 is counted if the
answer in one piece is another one. The results stay in vllm_turns.jsonl, of which `turns_pages.py` makes the pages, and the
streams in benchmarks/out/streams; arguments name the groups to play again, and `next` plays all of them on the Responses API of
the installed vLLM alone, for the comparison with a newer release; `fixes` plays all, or the groups after it, with the fixes of
tests/real_vllm/fixes.py, for the table of what each gives. `--turn` plays one turn through the Responses API of both servers,
shows the events and the verdict on each stream, and writes no page. What vLLM sent for the turns in `SAMPLES` goes to the
corpus.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import distribution, version
from itertools import groupby
from pathlib import Path
from typing import Final

import httpx
from attrs import asdict, evolve

from interlock.dialects import ApiName
from interlock.events.json import members, parse
from interlock.events.rulebook import Finding
from interlock.judges.whole import compare_whole
from interlock.serving.cli.check import check
from interlock.testing.conformance.player import CaseEnd, Player

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "real_vllm")]

import apis  # noqa: E402 - it is found by the line above
from faults import FAULTS, symptoms  # noqa: E402 - likewise
from fixes import FIXES  # noqa: E402 - likewise
from playing import TIMEOUT, events  # noqa: E402 - likewise
from runs import described, one_of, this_run  # noqa: E402 - likewise
from servers import ALL_APIS, FAMILIES, Server, Setup, family  # noqa: E402 - likewise
from servers import HARMONY as HARMONY_SETUP  # noqa: E402 - likewise
from servers import PARSED as PARSED_SETUP  # noqa: E402 - likewise
from turns import HARMONY, PARSED, Turn, family_turns  # noqa: E402 - likewise
from turns_pages import (  # noqa: E402 - likewise
    FIX_RESULTS,
    RESULTS,
    SAMPLES,
    Played,
    Run,
    file_name,
    read_fixes,
    read_results,
    sample_files,
)
from turns_pages import main as write_pages  # noqa: E402 - likewise

STREAMS: Final = ROOT / "benchmarks" / "out" / "streams"
"""The streams of the last run, by side and API."""
SHOWN: Final = STREAMS.with_name("turn")
"""Those of turns that were played alone."""
CORPUS: Final = ROOT / "tests" / "corpus" / "vllm"
HARMONY_FLAGS: Final = ("--enable-auto-tool-choice", "--tool-call-parser", "openai")
"""The flags without which vLLM's other APIs have no calls of gpt-oss."""
PLAN: Final[Sequence[tuple[str, Setup, Sequence[Turn]]]] = (
    ("harmony", evolve(HARMONY_SETUP, flags=HARMONY_FLAGS), HARMONY),
    ("text with markers", PARSED_SETUP, PARSED),
    *((f"`{name}`", family(name), family_turns(name, reasoning)) for name, reasoning in FAMILIES.items()),
)
TERMINAL: Final = ("response.completed", "response.incomplete", "response.failed")
WHOLE: Final[Mapping[ApiName, str]] = {"responses": "R19", "messages": "M13", "chat": "C9"}
"""The rule for the answer in one piece."""
SIDES: Final[Mapping[str, Sequence[ApiName]]] = {side: tuple(apis.PATHS) for side in ("vllm", "interlock")}
"""The APIs to play on each side: a server without the plugin, and one with it."""
NEXT_SIDES: Final[Mapping[str, Sequence[ApiName]]] = {"next": ("responses",)}
"""Those for a newer release of vLLM, without the plugin."""
AT_ONCE: Final = 4
"""How many turns a server plays at once."""


def play(
    server: Server, turn: Turn, group: str, api: ApiName = "responses", folder: Path | None = None, fixes: int = 0
) -> Played:
    """Play one turn through an API, and write its stream and its whole answer to a folder; `fixes` says how many apply."""
    request, path, chosen = apis.request(api, server.setup.model, turn), apis.PATHS[api], {"fixes": str(fixes)}
    headers = {"turn": f"{api} {turn.name}", **chosen}
    try:
        reply, judged = Player(server.url, api, server.setup.model, headers, TIMEOUT).ask(request)
    except CaseEnd:
        return Played(group, turn.is_ordinary, refused=True)
    answer = httpx.post(f"{server.url}{path}", json=request, timeout=TIMEOUT, headers=chosen)
    if folder is not None:
        (folder / file_name(turn.name)).write_bytes(reply.data)
        (folder / file_name(turn.name, "json")).write_bytes(answer.content)
    errors, deviations = Counter[str](), Counter[str]()
    sentences: list[str] = []
    for finding, times in judged.findings.items():
        if finding.deviation != "no-done-marker":
            (errors if finding.severity == "error" else deviations)[finding.rule] += times
            sentences.append(sentence(finding))
    bodies, output, reason = events(reply.data), reply.output, reply.reason
    ended = bool(bodies) and bodies[-1].get("type") in TERMINAL if api == "responses" else bool(reason)
    if api != "responses":
        difference = "" if apis.is_same(api, (output, reason), answer.json()) else "the whole answer is another one"
    else:
        difference = compare_whole(bodies[-1].get("response") if ended else None, members(parse(answer.content)))
    if difference:
        sentences.insert(errors.total(), f"{WHOLE[api]}: {difference}")
        errors[WHOLE[api]] += 1
    return Played(
        group,
        turn.is_ordinary,
        errors,
        deviations,
        judged.has_done_marker,
        ended,
        apis.difference(output, turn.output),
        first=next(iter(sentences), ""),
        failed=reason in ("error", "failed"),
        symptoms=tuple(symptoms(reply.data, difference and f"R19: {difference}")) if api == "responses" else (),
    )


def sentence(finding: Finding) -> str:
    """Return a finding with its rule and the event in which it was found."""
    event = finding.received.removeprefix("response.")
    return f"{finding.rule}: {f'`{event}`: ' if event else ''}{finding.message}"


def measure(
    setup: Setup, turns: Sequence[Turn], group: str, sides: Mapping[str, Sequence[ApiName]], streams: Path = STREAMS
) -> Iterator[tuple[str, ApiName, str, Played]]:
    """Play turns through the APIs of each side; yield the side, the API and the name with each result."""
    setup = evolve(setup, flags=(*setup.flags, "--middleware", "middlewares.ExceptionLog"))
    setups = {
        "vllm": evolve(setup, plugin=False),
        "next": evolve(setup, plugin=False),
        "interlock": evolve(setup, environment={**setup.environment, **ALL_APIS}),
    }
    servers = {side: Server(setups[side]) for side in sides}
    print(f"starting vLLM for {group}: {' and '.join(servers)} …", flush=True)
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        for server in servers.values():
            stack.push(server.begin())
        for server in servers.values():
            server.__enter__()  # both, because a server that starts slows down one that plays
        for side, server in servers.items():
            for api in sides[side]:
                folder = streams / side / api
                folder.mkdir(parents=True, exist_ok=True)
                results = list(pool.map(partial(play, server, group=group, api=api, folder=folder), turns))
                raised = exceptions(server.process.log)
                for turn, result in zip(turns, results, strict=True):
                    yield side, api, turn.name, evolve(result, **raised.get(f"{api} {turn.name}", {}))


def show(names: Collection[str]) -> None:
    """Play turns through the Responses API of both servers, and show the events and the verdict on each stream."""
    sides: Mapping[str, Sequence[ApiName]] = dict.fromkeys(SIDES, ("responses",))
    for group, setup, turns in PLAN:
        chosen = [turn for turn in turns if turn.name in names]
        for side, api, name, played in measure(setup, chosen, group, sides, SHOWN) if chosen else ():
            stream = SHOWN / side / api / file_name(name)
            print(f"\n{side}: {name}")
            for event, same in groupby(str(body.get("type")) for body in events(stream.read_bytes())):
                times = len([*same])
                print(f"    {event.removeprefix('response.')}{f', {times} times' if times > 1 else ''}")
            if played.raised:
                print(f"    {played.raised} ({played.at})")
            with suppress(SystemExit):  # it exits with 1 after an error
                check.main([str(stream), "--whole", str(stream.with_suffix(".json"))], standalone_mode=False)


def play_fixes(groups: Sequence[str], build: str) -> None:
    """Play turns with none of `FIXES`, with the first, with the first two, and so on; keep the rules that each turn breaks."""
    kept = {**read_fixes().rules}
    turns_rules = {**kept.get(build, {})}
    for group, setup, turns in PLAN:
        if not groups or group.strip("`") in groups:
            server = Server(evolve(setup, plugin=False, flags=(*setup.flags, "--middleware", "fixes.Fixes")))
            with server, ThreadPoolExecutor(AT_ONCE) as pool:
                columns = [
                    [" ".join(played.errors) for played in pool.map(partial(play, server, group=group, fixes=number), turns)]
                    for number in range(len(FIXES) + 1)
                ]
            turns_rules |= {turn.name: rules for turn, *rules in zip(turns, *columns, strict=True)}
    fixes = [str(fix.__doc__).partition("\n")[0] for fix in FIXES]
    kept[build] = {turn.name: turns_rules[turn.name] for _, _, turns in PLAN for turn in turns if turn.name in turns_rules}
    rows = ({"build": build, "turn": name, "rules": rules} for build, turns in kept.items() for name, rules in turns.items())
    head = {"fixes": fixes, "recorded": described(this_run())}
    FIX_RESULTS.write_text("".join(f"{json.dumps(row)}\n" for row in (head, *rows)), encoding="utf-8")
    write_pages()


def exceptions(log: str) -> Mapping[str, Mapping[str, str]]:
    """Return what `middlewares.ExceptionLog` wrote to a log, by turn."""
    found = map(json.loads, re.findall(r'\{"turn": .*\}$', log, re.MULTILINE))
    return {each.pop("turn"): each for each in found}


def results(run: Run, sides: Mapping[str, Mapping[ApiName, Mapping[str, Played]]]) -> Iterator[str]:
    """Yield the lines of the results, without empty values; the turns have the order of `PLAN`."""
    yield json.dumps(asdict(run))
    names = [turn.name for _, _, turns in PLAN for turn in turns]
    for side, apis_played in sides.items():
        for api, turns in apis_played.items():
            for name in names:
                if name in turns:
                    played = asdict(turns[name], filter=lambda _, value: bool(value))
                    yield json.dumps({"side": side, "api": api, "turn": name, **played}, ensure_ascii=False)


def arguments() -> Namespace:
    """Return the arguments of the command line: `groups`, and each `turn` to show."""
    names = ("next", "fixes", *(group.strip("`") for group, _, _ in PLAN))
    parser = ArgumentParser(description=main.__doc__)
    parser.add_argument("groups", nargs="*", type=one_of(names), help=", ".join(names))
    parser.add_argument(
        "--turn", action="append", default=[], help="a turn to show instead; docs/evidence/conformance/turns.md has the names"
    )
    options = parser.parse_args()
    unknown = {*options.turn} - {turn.name for _, _, turns in PLAN for turn in turns}
    if unknown:
        parser.error(f"docs/evidence/conformance/turns.md has no {', '.join(map(repr, unknown))}")
    if "fixes" in options.groups[1:] or ("next" in options.groups and options.groups != ["next"]):
        parser.error("fixes comes first, and next alone")
    return options


def main() -> None:
    """Measure the groups that the command line names, or all; keep the results, and write the pages."""
    options = arguments()
    if options.turn:
        show(options.turn)
        return
    source = Path(str(distribution("vllm").locate_file("")))
    build = f"vLLM {version('vllm')} ({platform.machine()}, Python {platform.python_version()})"
    run, sides = read_results(RESULTS.read_text(encoding="utf-8"))
    groups, played_sides = options.groups, SIDES
    if groups[:1] == ["fixes"]:
        play_fixes(groups[1:], build)
        return
    if groups == ["next"]:
        run, groups, played_sides = evolve(run, next_build=build, next_recorded=described(this_run())), [], NEXT_SIDES
    else:
        lines = {str(place): place.line(source) for fault in FAULTS for place in fault.places}
        run = evolve(run, build=build, openai=version("openai"), lines=lines, recorded=described(this_run()))
    for group, setup, turns in PLAN:
        if not groups or group.strip("`") in groups:
            for side, api, name, played in measure(setup, turns, group, played_sides):
                sides.setdefault(side, {}).setdefault(api, {})[name] = played
                print(side, api, name, played, flush=True)
            RESULTS.write_text("\n".join(results(run, sides)) + "\n", encoding="utf-8")
    for name in SAMPLES if "vllm" in played_sides else ():
        for file in sample_files(name, sides["vllm"]["responses"][name]):
            shutil.copy(STREAMS / "vllm" / "responses" / file, CORPUS)
    write_pages()


if __name__ == "__main__":
    main()
