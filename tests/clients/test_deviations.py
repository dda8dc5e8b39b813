"""Each tested client tolerates every deviation: it reads the same from the stream as from a legal one."""

import json

import pytest
from clients.deviations import BREAKING, DEVIATIONS, LEGAL, TOLERATED
from clients.hosts import HERE, ROOT, run, scripted
from clients.test_clients import SCRIPTS
from clients.test_codex import CODEX, FREELY

PLAYED = {**LEGAL, **DEVIATIONS, **BREAKING, **TOLERATED}
ANSWER = {"calls": [{"city": "Berlin"}], "answer": "It is warm."}


def conversations(client, urls, folder):
    """Return the outcome of a conversation with each server; of a client that fails, its `error`."""
    if client == "Codex":
        return [of_codex(url, folder / str(number)) for number, url in enumerate(urls)]
    ran = run(SCRIPTS[client], HERE, BASE_URL=" ".join(urls), MODEL="gpt-5.5")
    outcomes = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(outcomes) == len(urls), ran.stderr
    return outcomes


def of_codex(url, folder):
    """Return the expected call with the last line that Codex prints, or its `error`."""
    for name in ("home", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "played"\n[model_providers.played]\nname = "played"\nbase_url = "{url}"\n'
        'wire_api = "responses"\nstream_max_retries = 0\nrequest_max_retries = 0\n'
    )
    ran = run([*CODEX, *FREELY, "Get the weather of: Berlin"], folder / "work", CODEX_HOME=str(folder / "home"))
    return {"error": ran.stderr} if ran.returncode else {**ANSWER, "answer": ran.stdout.strip().splitlines()[-1]}


@pytest.mark.parametrize("client", [*SCRIPTS, "Codex"])
def test_a_client_tolerates_every_deviation(client, tmp_path):
    with scripted([turns.streams for turns in PLAYED.values()]) as urls:
        played = dict(zip(PLAYED, conversations(client, urls, tmp_path), strict=True))
    outcomes = {name: "error" if "error" in outcome else outcome for name, outcome in played.items()}
    assert outcomes["answered"] == ANSWER
    broken = {name for name, turns in PLAYED.items() if outcomes[name] != outcomes[turns.like if name not in LEGAL else name]}
    says = {name: turns.breaks[client] for name, turns in PLAYED.items() if client in turns.breaks}
    assert broken == {*says}
    assert {name: text for name, text in says.items() if text not in played[name].get("error", "")} == {}


def test_the_page_has_what_clients_say():
    page = (ROOT / "docs" / "evidence" / "conformance" / "clients.md").read_text()
    assert {text for turns in PLAYED.values() for text in turns.breaks.values() if text not in page} == set()
