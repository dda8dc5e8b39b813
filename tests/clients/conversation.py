"""What every client is asked to do: call a tool, and use its answer."""

import json
import os
import sys

BASE_URL = os.environ["BASE_URL"]
MODEL = os.environ["MODEL"]
API_KEY = "none"
QUESTION = "Get the weather of: Berlin"

calls = []


def get_weather(city: str) -> str:
    """The weather of a city."""
    calls.append({"city": city})
    return "18 °C and sunny"


def report(text):
    """Print what the test compares: the arguments of each call that was made, and the last text."""
    sys.stdout.write(json.dumps({"calls": calls, "text": text}) + "\n")
