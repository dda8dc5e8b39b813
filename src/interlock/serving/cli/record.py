"""The command `interlock record`, which records the answers of a server as a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interlock.serving.cli.options import UpstreamOptions, examples, options_of, upstreams_of
from interlock.serving.cli.sources import bind, fail


@click.command(epilog=examples("interlock record --upstream http://127.0.0.1:11434 -o weather.json"))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The script to write.",
)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, metavar="PORT", help="The port; 0 for any free one.")
@options_of(UpstreamOptions)
def record(output: Path, *, host: str, port: int, **upstream: Any) -> None:  # noqa: ANN401 - click has converted them
    """Record the answers of a server as a script.

    Clients use the models of the server through this one. The script, a JSON file, has the users' messages and the answers, but
    no keys and no headers.
    """
    from interlock.serving.engines.upstream.script_recorder import RecordingGateway, ScriptRecorder
    from interlock.serving.http import server
    from interlock.serving.http.app import create_app

    upstreams = upstreams_of(UpstreamOptions(**upstream))
    if not upstreams:
        fail("name a server: --upstream URL, or --config FILE")
    if output.suffix != ".json":
        fail(f"-o {output}: a recorded script is JSON; choose a name that ends with .json")
    listening = bind(server.listen, host, port)
    app = create_app(RecordingGateway(upstreams, recorder=ScriptRecorder(output)))
    message = f"Recording {output} at {server.url_of(listening)}/v1"
    server.serve(app, listening, on_ready=lambda: click.echo(message, err=True))
