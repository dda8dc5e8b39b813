"""The command `interlock record`, which records the answers of a server as a script."""

from __future__ import annotations

from pathlib import Path

import click

from interlock.serving.cli.options import UPSTREAM, examples, options_of, required_upstreams, settings_of
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
@options_of("host", "port", *UPSTREAM)
def record(output: Path, **_options: object) -> None:
    """Record the answers of a server as a script.

    Clients use the models of the server through this one. The script, a JSON file, has the users' messages and the answers, but
    no keys and no headers.
    """
    from interlock.serving.build import build
    from interlock.serving.engines.upstream.script_recorder import RecordingGateway, ScriptRecorder
    from interlock.serving.http import server

    settings = settings_of()
    upstreams = required_upstreams(settings)
    if output.suffix != ".json":
        fail(f"-o {output}: a recorded script is JSON; choose a name that ends with .json")
    listening = bind(server.listen, settings.host, settings.port)
    app = build(settings, RecordingGateway(upstreams, recorder=ScriptRecorder(output)))
    message = f"Recording {output} at {server.url_of(listening)}/v1"
    server.serve(app, listening, on_ready=lambda: click.echo(message, err=True))
