"""Each tested client tolerates every deviation: it reads the same from the stream as from a legal one."""

import json

import pytest
from clients.deviations import BREAKING, DEVIATIONS, LEGAL, TOLERATED
from clients.hosts import HERE, run, scripted
from clients.test_clients import SCRIPTS
from clients.test_codex import CODEX, FREELY

PLAYED = {**LEGAL, **DEVIATIONS, **BREAKING, **TOLERATED}
ANSWER = {"calls": [{"city": "Berlin"}], "answer": "It is warm."}


def conversations(client, urls, folder):
    """Return the outcome of a conversation with each server; for any error, `error`."""
    if client == "Codex":
        return [of_codex(url, folder / str(number)) for number, url in enumerate(urls)]
    ran = run(SCRIPTS[client], HERE, BASE_URL=" ".join(urls), MODEL="gpt-5.5")
    outcomes = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(outcomes) == len(urls), ran.stderr
    return ["error" if "error" in outcome else outcome for outcome in outcomes]


def of_codex(url, folder):
    """Return the expected call with the last line that Codex prints, or `error`."""
    for name in ("home", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "played"\n[model_providers.played]\nname = "played"\nbase_url = "{url}"\n'
        'wire_api = "responses"\nstream_max_retries = 0\nrequest_max_retries = 0\n'
    )
    ran = run([*CODEX, *FREELY, "Get the weather of: Berlin"], folder / "work", CODEX_HOME=str(folder / "home"))
    return "error" if ran.returncode else {**ANSWER, "answer": ran.stdout.strip().splitlines()[-1]}


@pytest.mark.parametrize("client", [*SCRIPTS, "Codex"])
def test_a_client_tolerates_every_deviation(client, tmp_path):
    with scripted([turns.streams for turns in PLAYED.values()]) as urls:
        outcomes = dict(zip(PLAYED, conversations(client, urls, tmp_path), strict=True))
    assert outcomes["answered"] == ANSWER
    broken = {name for name, turns in PLAYED.items() if outcomes[name] != outcomes[turns.like if name not in LEGAL else name]}
    assert broken == {name for name, turns in PLAYED.items() if client in turns.breaks}
