"""`interlock doctor` says what an upstream can do, and what is wrong."""

import re
import socket

import pytest
from click.testing import CliRunner

from interlock.serving.cli import doctor
from interlock.serving.cli.commands import app
from interlock.serving.cli.doctor import ModelAnswer, ReportLine
from interlock.serving.engines.embedded import EmbeddedEngine
from interlock.serving.http.app import create_app
from interlock.serving.http.server import ServerThread


def run(*arguments):
    result = CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    return result.exit_code, re.sub(r"\d+\.\d\d s", "N s", result.stdout).splitlines()


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_upstream_that_can_do_everything(api):
    with ServerThread(create_app(EmbeddedEngine(["tiny"]))) as url:
        status, lines = run("--upstream", url, "--upstream-api", api)
    assert status == 0
    assert [line[:16] for line in lines] == [
        "models     yes  ",
        "window     yes  ",
        "answers    yes  ",
        "streams    yes  ",
        "usage      yes  ",
        "tools      yes  ",
        "reasoning  yes  ",
        "schema     yes  ",
        "logprobs   yes  ",
    ]
    assert lines[0] == "models     yes  1: tiny"
    assert lines[2].endswith(", first event after N s")


def test_an_upstream_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    status, lines = run("--upstream", f"http://127.0.0.1:{port}", "--upstream-retries", "0")
    assert status == 1
    assert lines[1] == "answers    no   there is no model to ask; name one with --model NAME"
    assert lines[0] == "models     no   The upstream server cannot be reached."


def test_a_model_that_the_upstream_lacks():
    with ServerThread(create_app(EmbeddedEngine(["tiny"]))) as url:
        status, lines = run("--upstream", url, "--model", "other")
    assert (status, lines[2].partition("The model")[0]) == (1, "answers    no   other: ")


def test_an_upstream_is_required():
    result = CliRunner().invoke(app, ["doctor"])
    assert (result.exit_code, result.stderr) == (2, "interlock: name a server: --upstream URL, or --config FILE\n")


def message(text, **fields):
    return {"type": "message", "content": [{"type": "output_text", "text": text, **fields}]}


def reply(*output, **fields):
    return ModelAnswer({"output": [*output], **fields})


@pytest.mark.parametrize(
    ("read", "answer", "line"),
    [
        (doctor._tools, reply(message("It rains.")), ReportLine("tools", "no", "the model wrote 'It rains.' instead of a call")),
        (doctor._tools, ModelAnswer(error="No tools."), ReportLine("tools", "no", "No tools.")),
        (
            doctor._tools,
            reply({"call_id": "call_1", "name": "get_weather", "arguments": '{"city'}),
            ReportLine("tools", "no", 'get_weather({"city)'),
        ),
        (doctor._schema, reply(message("five")), ReportLine("schema", "no", "five")),
        (doctor._logprobs, reply(message("OK")), ReportLine("logprobs", "no", "the answer has none")),
        (
            doctor._usage,
            reply(usage=None),
            ReportLine("usage", "no", "the upstream counts no tokens, so the usage of responses is null"),
        ),
        (
            lambda each: doctor._reasoning([each]),
            reply(message("<think>Hm</think>OK")),
            ReportLine("reasoning", "no", "the answer begins with a tag; a format of --family may read it"),
        ),
        (lambda each: doctor._reasoning([each]), reply(message("OK")), ReportLine("reasoning", "-", "no answer had any")),
    ],
)
def test_what_an_upstream_lacks(read, answer, line):
    assert read(answer) == line
