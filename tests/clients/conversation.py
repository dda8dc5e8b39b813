"""What every client is asked to do: call a tool, and use its answer."""

import json
import os
import sys
import traceback

MODEL = os.environ["MODEL"]
API_KEY = "none"
QUESTION = "Get the weather of: Berlin"

calls = []


def get_weather(city: str) -> str:
    """The weather of a city."""
    calls.append({"city": city})
    return "18 °C and sunny"


def each(converse):
    """Converse with each server of `BASE_URL`, and print what the test compares.

    That is the arguments of each call that was made, and the last text.
    """
    ended = 0
    for url in os.environ["BASE_URL"].split():
        calls.clear()
        try:
            outcome = {"text": converse(url), "calls": calls}
        except Exception as error:  # noqa: BLE001 - whatever the client makes of it
            traceback.print_exc()
            outcome, ended = {"error": repr(error)}, 1
        sys.stdout.write(json.dumps(outcome) + "\n")
    sys.exit(ended)
