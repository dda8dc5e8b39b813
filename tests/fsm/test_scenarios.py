"""Random deltas through the driver give legal streams, typed and true, in both forms and both dialects."""

import json
from pathlib import Path

import pytest
from fuzzing.properties import PROPERTIES
from fuzzing.scenarios import SCENARIOS, from_json, to_json
from hypothesis import HealthCheck, given, settings

KEPT = sorted((Path(__file__).parents[1] / "counterexamples").glob("*.json"))


@pytest.mark.long
@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenario=SCENARIOS)
def test_every_scenario(holds, scenario):
    holds(scenario)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_counterexamples_of_the_past_are_legal(kept, holds):
    holds(from_json(json.loads(kept.read_text())))


@given(scenario=SCENARIOS)
def test_a_scenario_can_be_kept(scenario):
    assert from_json(json.loads(json.dumps(to_json(scenario)))) == [
        delta if isinstance(delta, str) else from_json(json.loads(json.dumps(to_json([delta]))))[0] for delta in scenario
    ]
