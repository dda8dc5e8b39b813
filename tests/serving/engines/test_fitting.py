"""With `truncation: auto`, the oldest turns are dropped if the prompt is too long, and for no other reason."""

import asyncio

import pytest

from interlock.serving.engines.engine import Generation, Turn
from interlock.serving.engines.generation import fitting
from interlock.serving.requests.api_errors import ApiError, PromptError, invalid, no_such_model
from interlock.serving.requests.create import read_request


class Narrow:
    """An engine that refuses prompts of more than one item with an error."""

    def __init__(self, error):
        self.error = error

    async def count(self, turn):
        if len(turn.items) > 1:
            raise self.error
        return 1


def fitted(error):
    """The number of items that are left of three."""
    items = [{"role": "user", "content": f"{number}"} for number in range(3)]
    request = read_request({"model": "m", "input": items, "truncation": "auto"})
    turn = Turn(request, request.input, None)
    return len(asyncio.run(fitting(Generation(Narrow(error), None), turn)).items)


@pytest.mark.parametrize(
    "error",
    [
        PromptError("It is too long."),
        invalid("input", "It does not fit.", "context_length_exceeded"),
        ApiError(400, "The engine prompt length 9 exceeds the max_model_len 8. Please reduce prompt.", param="input"),
        invalid("input_tokens", "This model's maximum context length is 8 tokens."),
        ApiError(400, "the request exceeds the available context size", "exceed_context_size_error"),
    ],
)
def test_the_oldest_turns_of_a_prompt_that_is_too_long_are_dropped(error):
    assert fitted(error) == 1


@pytest.mark.parametrize(
    "error",
    [
        invalid("input", "An image cannot be sent to this model.", "unsupported_value"),
        invalid("input", "At most 0 image(s) may be provided in one prompt."),
        no_such_model("m"),
        ApiError(502, "The upstream server cannot be reached.", "server_error", code="upstream_unreachable"),
    ],
)
def test_no_turn_is_dropped_for_another_reason(error):
    assert fitted(error) == 3
