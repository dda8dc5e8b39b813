"""No mutated stream or recording makes a judge, a reporter, the viewer or a replay raise an unexpected exception.

`INTERLOCK_FUZZ_MUTANTS` sets the number of mutants, and `INTERLOCK_FUZZ_SEED` the first seed.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.events.dialects import DIALECTS
from interlock.events.json import clean
from interlock.judges import AnyJudge
from interlock.serving.cli.check import CheckedSource, as_annotations, as_json, as_text
from interlock.serving.cli.options import OpenStream
from interlock.serving.cli.view import StreamSource
from interlock.serving.engines.recordings import RecordingError, read, replay_frames, replay_response
from interlock.serving.view.trace import encode_lines

pytestmark = pytest.mark.long


class Seeded(random.Random):
    """Makes the choices of a mutation from a seed."""


ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
APIS = ("messages", "chat")


def framed(events):
    """The events of another API than Responses, as server-sent events."""
    named = [(f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else "", event) for event in events]
    return "".join(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for name, event in named).encode()


STREAMS = [
    *(path.read_bytes() for path in sorted(CORPUS.glob("*/*.sse"))),
    *(framed(stream["events"]) for api in APIS for stream in json.loads((CORPUS / f"{api}.json").read_text()).values()),
]
RECORDINGS = sorted((CORPUS / "recordings").glob("*.jsonl"))
MUTANTS = int(os.environ.get("INTERLOCK_FUZZ_MUTANTS", "600"))
SEEDS = 10
SEED = int(os.environ.get("INTERLOCK_FUZZ_SEED", "0"))

VALUES = (
    *("null", "true", "0", "-1", "0.5", "1e999", "1.0", '""', '"x"', r'"\ud800"', r'"\udc00\ud800"', '"é"', r'"\u0000\r\n"'),
    *("[]", "{}", "[[]]", "[null]", "[{}]", '{"type": {}}', '{"type": []}', '{"type": null}', r'{"\ud800": "\udfff"}'),
    *(str(2**63), str(-(2**80)), "9" * 400, "9" * 5000, '"' + "y" * 9000 + '"'),
    *("[" * depth + "]" * depth for depth in (300, 900, 1020, 3000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (300, 900, 1020, 3000)),
)
"""Values that a mutation inserts, as JSON."""
FIELDS = (
    *("type", "id", "x", "item", "part", "delta", "response", "output_index", "logprobs", "\ud800"),
    *("index", "content_block", "stop_reason", "usage", "choices", "finish_reason", "tool_calls", "error"),
)
"""The names of fields that a mutation adds."""
FOREIGN = (
    '{"type":"content_block_start","index":0,"content_block":{"type":"poem","input":[]}}',
    '{"type":"content_block_start","index":1,"content_block":{"type":["text"]}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1]"}}',
    '{"type":"message_delta","delta":{"stop_reason":["tool_use"]},"usage":[]}',
    '{"object":"chat.completion.chunk","choices":[{"index":[],"delta":{"tool_calls":{}},"finish_reason":{}}]}',
    '{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"null"}}]},"finish_reason":["stop"]}]}',
    *('{"type":"error"}', '{"error":[]}', "[DONE]", ""),
)
"""Event data that no service sends at this place."""
PLACEHOLDER = "the value"


def places(value):
    """Yield the holder and the name of every value inside of one."""
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, step
        yield from places(inner)


def edited(chance, body):
    """Return an event as JSON with one value replaced, or one field added."""
    body = json.loads(json.dumps(body))
    holder, name = chance.choice([*places(body), (body, "x")])
    if chance.random() < 0.2 and isinstance(holder, dict):
        name = chance.choice(FIELDS)
    holder[name] = PLACEHOLDER
    return json.dumps(body).replace(f'"{PLACEHOLDER}"', chance.choice(VALUES)).encode()


def mutated(chance, data):
    """Change one or a few lines of JSON, or the bytes."""
    lines = data.split(b"\n")
    for _ in range(chance.randint(1, 3)):
        at = chance.choice([at for at, line in enumerate(lines) if b"{" in line] or [0])
        before, brace, rest = lines[at].partition(b"{")
        match chance.randint(0, 9):
            case 0:
                del lines[at]
            case 1:
                lines[at:at] = [lines[at]]
            case 2:
                place = chance.randint(0, len(lines[at]))
                lines[at] = lines[at][:place] + chance.randbytes(2) + lines[at][place + chance.randint(0, 3) :]
            case 3:
                lines[at] = before + chance.choice(VALUES).encode()
            case 4:
                lines[at:at] = [b"data: " + chance.choice(FOREIGN).encode(), b""]
            case 5 if chance.random() < 0.1:
                return chance.choice((b"", b"\n\n", b"data: {}\n\n", b"data: [DONE]\n\n"))
            case _:
                with suppress(ValueError, RecursionError):
                    lines[at] = before + edited(chance, json.loads(brace + rest))
    return b"\n".join(lines)


def pieces(chance, data):
    cut = chance.randint(0, len(data))
    return iter([data[:cut], data[cut:]])


def judge_and_render(chance, data):
    """Judge a stream, write the verdict in every form, and encode the lines of the viewer."""
    dialect = chance.choice([*DIALECTS])
    api = chance.choice((None, "responses", *APIS))
    judging = AnyJudge(api=api, dialect=dialect, permissive=chance.random() < 0.5, first=chance.randint(0, 1))
    for piece in pieces(chance, data):
        judging.feed(piece)
    verdict = judging.end()
    result = CheckedSource("a", verdict, verdict.findings)
    text = [*as_text(result, 80), *as_annotations(result), as_json([result]).decode()]
    clean("\n".join(text)).encode()
    for batch in StreamSource("a", OpenStream(pieces(chance, data))).batches(dialect):
        encode_lines(batch)


def json_lines(data):
    """Return the JSON of a stream without its framing, an object in each line."""
    return b"\n".join(line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: {"))


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_a_mutated_stream_never_makes_a_judge_or_the_viewer_raise(seed):
    chance = Seeded(seed)
    for number in range(MUTANTS // SEEDS):
        data = mutated(chance, chance.choice(STREAMS))
        data = json_lines(data) if number % 5 == 0 else data
        try:
            judge_and_render(chance, data)
        except Exception as error:
            raise AssertionError(f"mutant {number} of seed {seed}: {data!r:.3000}") from error


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_a_mutated_recording_raises_only_recording_errors(seed):
    chance = Seeded(seed)
    for number in range(MUTANTS // SEEDS // 4):
        data = mutated(chance, chance.choice(RECORDINGS).read_bytes())
        try:
            recording = read(data.splitlines())
            b"".join(replay_frames(recording, chance.choice([*DIALECTS.values()])))
            replay_response(recording)
            for batch in StreamSource("a", OpenStream(iter(())), recording=recording).batches("openai"):
                encode_lines(batch)
        except RecordingError:
            continue
        except Exception as error:
            raise AssertionError(f"mutant {number} of seed {seed}: {data!r:.3000}") from error
