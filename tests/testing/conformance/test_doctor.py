"""`interlock doctor` prints the abilities and the faults of an upstream."""

import pytest
from click.testing import CliRunner
from live.upstream import STALL, Reply, ScriptedUpstream, failure, serve_upstream

from interlock.serving.build import build
from interlock.serving.cli.commands import app
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.server import ServerThread
from interlock.serving.settings import Settings
from interlock.testing import Mock

LATE = "a system message may follow others"
UNASKED = "answers    -    not asked, because no model is known; --model NAME names one"
SETTING = ": with `late_system = true` in the file, the gateway sends it as one"


def run(*arguments):
    result = CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout.splitlines()


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_doctor_says_yes_for_every_ability_of_a_complete_upstream(api) -> None:
    with ServerThread(build(Settings(), EmbeddedEngine(["tiny"]))) as url:
        status, (models, window, *cases) = run("--upstream", url, "--upstream-api", api)
    assert (status, models, window[:16]) == (0, "models     yes  1: tiny", "window     yes  ")
    assert cases == [
        "answers    yes  tiny",
        "limit      yes",
        "tools      yes",
        "reasoning  yes",
        "schema     yes",
        f"system     yes  {LATE}{SETTING if api == 'chat' else ''}",
    ]


def test_doctor_names_the_reason_if_the_upstream_cannot_be_reached() -> None:
    status, (models, answers) = run("--upstream", "http://127.0.0.1:1", "--upstream-retries", "0")
    reason = "http://127.0.0.1:1/v1 does not list its models: The upstream server cannot be reached. ("
    assert (status, models[: len(reason) + 16]) == (1, f"models     no   {reason}")
    assert answers == UNASKED


def test_doctor_does_not_say_that_a_hanging_upstream_has_no_model() -> None:
    hanging = ScriptedUpstream([], listing=Reply((STALL,)))
    with serve_upstream(hanging) as url:
        status, lines = run("--upstream", url, "--upstream-timeout", "0.1")
    reason = f"{url}/v1 does not list its models: The upstream server did not answer within 0.1 seconds."
    assert (status, lines) == (1, [f"models     no   {reason}", UNASKED])


def test_doctor_names_the_models_of_the_file_that_the_upstream_lacks(tmp_path) -> None:
    with serve_upstream(ScriptedUpstream([], models=("m",))) as url:
        config = tmp_path / "gateway.toml"
        config.write_text(f'[[upstream]]\nurl = "{url}"\naliases = {{ gpt = "other" }}\nretries = 0\n')
        status, (models, *_) = run("--config", str(config))
    assert (status, models) == (1, f"models     no   {url}/v1 does not list other, which the settings name")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_doctor_asks_a_model_of_each_upstream_and_fails_if_one_of_them_fails(tmp_path, order) -> None:
    refusing = ScriptedUpstream([failure(401, {"error": {"message": "Invalid key"}})], models=("r",))
    with (
        ServerThread(build(Settings(), EmbeddedEngine(["tiny", "other"]))) as complete_url,
        serve_upstream(refusing) as refusing_url,
    ):
        urls = [complete_url, refusing_url]
        config = tmp_path / "gateway.toml"
        config.write_text("".join(f'[[upstream]]\nurl = "{urls[index]}"\n' for index in order))
        status, lines = run("--config", str(config))
    reports = [
        [f"{complete_url}/v1", "models     yes  2: tiny, other", "answers    yes  tiny"],
        [
            f"{refusing_url}/v1",
            "models     yes  1: r",
            "answers    no   r: 502 The upstream server refuses the key of the gateway.",
        ],
    ]
    kept = [line for line in lines if line.startswith(("http", "models", "answers"))]
    assert (status, kept) == (1, [*reports[order[0]], *reports[order[1]]])


def test_doctor_fails_for_a_model_that_the_upstream_lacks() -> None:
    with ServerThread(build(Settings(), EmbeddedEngine(["tiny"]))) as url:
        status, lines = run("--upstream", url, "--model", "other")
    assert (status, lines[2].partition("The model")[0]) == (1, "answers    no   other: 404 ")


def test_doctor_lists_the_missing_abilities_of_a_model_that_only_writes_text() -> None:
    with Mock() as mock:
        mock.when().says("<think>Hm.</think>Hello.")
        status, lines = run("--upstream", mock.base_url, "--upstream-api", "responses", "--model", "tiny")
    assert status == 1
    assert lines[2:] == [
        "answers    yes  tiny",
        "limit      -    it ends earlier",
        "tools      no   calls nothing",
        "reasoning  -    the text begins with a tag instead",
        "schema     no   the text is '<think>Hm.</think>Hello.'",
        f"system     yes  {LATE}",
    ]


@pytest.mark.parametrize(
    ("api", "consequence"),
    [
        ("chat", "the gateway sends a later one as a user's text"),
        ("responses", "a client that sends a later one receives an error"),
    ],
)
def test_doctor_detects_that_the_system_message_must_come_first(api, consequence) -> None:
    with Mock() as mock:
        mock.when("How are you?").fails(400, "System message must be at the beginning.")
        mock.when().says("Hello.")
        _, lines = run("--upstream", mock.base_url, "--upstream-api", api, "--model", "m")
    assert lines[-1] == f"system     -    a system message must come first: {consequence}"


def test_doctor_does_not_judge_the_template_of_an_upstream_that_fails() -> None:
    refused = failure(500, {"error": {"message": "CUDA out of memory"}})
    with serve_upstream(ScriptedUpstream([refused])) as url:
        _, lines = run("--upstream", url, "--model", "m", "--upstream-retries", "0")
    assert [line[:11].strip() for line in lines] == ["models", "window", "answers", "limit", "tools", "reasoning", "schema"]
    assert lines[2] == "answers    no   m: 500 CUDA out of memory"


def test_doctor_says_that_an_upstream_refuses_the_key() -> None:
    refused = failure(401, {"error": {"message": "Invalid key"}})
    with serve_upstream(ScriptedUpstream([refused])) as url:
        status, lines = run("--upstream", url, "--model", "m")
    assert (status, lines[2:]) == (1, ["answers    no   m: 502 The upstream server refuses the key of the gateway."])


def test_doctor_ends_after_its_first_case_if_the_upstream_hangs() -> None:
    with Mock() as mock:
        mock.when().says("Hello.").waits(60)
        status, lines = run("--upstream", mock.base_url, "--model", "m", "--upstream-timeout", "1,1")
    assert (status, lines[2:]) == (1, ["answers    no   m: 504 The upstream server sent nothing for 1 seconds."])


def test_doctor_requires_an_upstream() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert (result.exit_code, result.stderr) == (2, "interlock: name a server: --upstream URL, or --config FILE\n")
