"""Nothing that a stream or a recording says makes a judge, a reporter, the viewer or a replay raise.

`INTERLOCK_FUZZ_MUTANTS` sets how many mutants are made, and `INTERLOCK_FUZZ_SEED` where they begin.
"""

import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.events.dialects import DIALECTS
from interlock.events.json import clean
from interlock.judges import Judge
from interlock.serving.cli.check import CheckedSource, as_annotations, as_json, as_text
from interlock.serving.cli.sources import OpenStream
from interlock.serving.cli.view import StreamSource
from interlock.serving.engines.recordings import RecordingError, read, replay_frames, replay_response
from interlock.serving.view.trace import encode_lines

pytestmark = pytest.mark.long


class Seeded(random.Random):
    """Makes the choices of a mutation from a seed."""


ROOT = Path(__file__).parents[2]
STREAMS = sorted((ROOT / "tests" / "corpus").glob("*/*.sse"))
RECORDINGS = sorted((ROOT / "tests" / "corpus" / "recordings").glob("*.jsonl"))
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
"""What may stand in a place, as JSON."""
GAP = "the value"


def places(value):
    """Yield the holder and the name of every value inside of one."""
    for step, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, step
        yield from places(inner)


def edited(chance, body):
    """Return an event as JSON with a value in another place, or a field more."""
    body = json.loads(json.dumps(body))
    holder, name = chance.choice([*places(body), (body, "x")])
    if chance.random() < 0.2 and isinstance(holder, dict):
        name = chance.choice(("type", "id", "x", "item", "part", "delta", "response", "output_index", "logprobs", "\ud800"))
    holder[name] = GAP
    return json.dumps(body).replace(f'"{GAP}"', chance.choice(VALUES)).encode()


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
            case _:
                with suppress(ValueError, RecursionError):
                    lines[at] = before + edited(chance, json.loads(brace + rest))
    return b"\n".join(lines)


def pieces(chance, data):
    cut = chance.randint(0, len(data))
    return iter([data[:cut], data[cut:]])


def look_at(chance, data):
    """Judge a stream, write the verdict in every form, and make the page."""
    dialect = chance.choice([*DIALECTS])
    judging = Judge(dialect=dialect, permissive=chance.random() < 0.5, first=chance.randint(0, 1))
    for piece in pieces(chance, data):
        judging.feed(piece)
    verdict = judging.end()
    result = CheckedSource("a", verdict, verdict.findings)
    text = [*as_text(result, 80), *as_annotations(result), as_json([result]).decode()]
    clean("\n".join(text)).encode()
    for batch in StreamSource("a", OpenStream(pieces(chance, data))).batches(dialect):
        encode_lines(batch)


def bare(data):
    """Return the JSON of a stream alone, an object in each line."""
    return b"\n".join(line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: {"))


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_no_stream_makes_a_judge_or_a_page_raise(seed):
    chance = Seeded(seed)
    for number in range(MUTANTS // SEEDS):
        data = mutated(chance, chance.choice(STREAMS).read_bytes())
        data = bare(data) if number % 5 == 0 else data
        try:
            look_at(chance, data)
        except Exception as error:
            raise AssertionError(f"mutant {number} of seed {seed}: {data!r:.3000}") from error


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_no_recording_makes_a_replay_raise_anything_else_than_why_it_cannot_be_read(seed):
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
