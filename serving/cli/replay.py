"""The command `interlock replay`: the stream or the response that a recording makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from interlock.events.dialects import DIALECTS, DialectName
from interlock.serving.cli.inputs import read_recording


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="A recording; - for standard input.")],
    *,
    chunk: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Cut the recording into chunks of N tokens first.")
    ] = None,
    stream: Annotated[bool, typer.Option(help="Write the stream, or only the final response as JSON.")] = True,
    dialect: Annotated[DialectName, typer.Option(help="The dialect to write.")] = "openai",
) -> None:
    """Write the stream that a recording makes.

    The recording goes through parser, driver and encoder, as the output of an engine does in the server.
    """
    import orjson

    from interlock.serving.recordings.rechunk import rechunk
    from interlock.serving.recordings.replay import replay_frames, replay_response

    recording = read_recording(file)
    recording = recording if chunk is None else rechunk(recording, chunk)
    output = sys.stdout.buffer
    if stream:
        for frame in replay_frames(recording, DIALECTS[dialect]):
            output.write(frame)
    else:
        response = DIALECTS[dialect].spoken(replay_response(recording))
        output.write(orjson.dumps(response, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    output.flush()
