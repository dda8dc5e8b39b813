"""The command prints what a program can read, says what is wrong with its input, and ends with the right status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import interlock
from interlock.serving.commands import app
from interlock.serving.recording import read
from interlock.serving.replay import replay_frames, replay_response

RECORDINGS = Path(__file__).parents[2] / "recordings"
TEXT = RECORDINGS / "text.jsonl"


def run(*arguments: object, given: bytes | None = None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)


def test_the_version_is_printed() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"interlock {interlock.__version__}\n")


def test_without_a_command_the_help_lists_the_commands() -> None:
    result = run()
    assert all(command in result.output for command in ("serve", "replay", "check"))


def test_replay_writes_the_stream_and_nothing_else() -> None:
    result = run("replay", TEXT)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == b"".join(replay_frames(read(TEXT)))


def test_replay_reads_standard_input() -> None:
    assert run("replay", "-", given=TEXT.read_bytes()).stdout_bytes == run("replay", TEXT).stdout_bytes


def test_replay_cuts_the_recording_into_chunks() -> None:
    frames = {size: run("replay", TEXT, "--chunk", size).stdout.count("output_text.delta") for size in (1, 1000)}
    assert frames[1000] == 2  # in `event:` and in the body of one frame
    assert frames[1] > 50


def test_replay_without_streaming_writes_the_response() -> None:
    result = run("replay", TEXT, "--no-stream")
    assert (result.exit_code, json.loads(result.stdout)) == (0, json.loads(json.dumps(replay_response(read(TEXT)))))


def test_a_malformed_recording_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"interlock_recording": 1, "format": "text"}\n{"text": "a"}\n{"text":\n')
    result = run("replay", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"interlock: {path}:3: not JSON: ")


def test_a_malformed_recording_on_standard_input_is_named_with_its_line() -> None:
    result = run("replay", "-", given=b"{}\n")
    message = "interlock: standard input:1: no recording: its first line has no interlock_recording\n"
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.parametrize("command", ["replay", "check"])
def test_a_file_that_cannot_be_read_is_named(command, tmp_path) -> None:
    result = run(command, tmp_path)
    assert (result.exit_code, result.stderr) == (2, f"interlock: {tmp_path}: Is a directory\n")


def test_a_chunk_of_no_tokens_is_a_wrong_option() -> None:
    assert run("replay", TEXT, "--chunk", 0).exit_code == 2


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "interlock", "replay", str(RECORDINGS / "logprobs.jsonl")]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)  # noqa: S603 - our own command
    os.close(writing)
    assert done.stderr == b""
