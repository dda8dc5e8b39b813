"""Serves a tiny model, whose turns may be scripted, for programs that run in another environment.

    python tests/real_vllm/serve.py SETUP [FOLDER]

SETUP is one of `servers.SETUPS`; for one that ends in `-turns`, FOLDER has the script (see `scripted_turns`). When the server is
ready, its URL is written to standard output; at the end of standard input, it stops.
"""

import sys

from attrs import evolve
from servers import SETUPS, Server


def main(name: str, folder: str = "") -> None:
    """Serve until standard input ends."""
    setup = SETUPS[name]
    turns = {"INTERLOCK_TURNS": folder, "INTERLOCK_TURNS_MODEL": setup.model}
    with Server(evolve(setup, environment={**setup.environment, **turns})) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
