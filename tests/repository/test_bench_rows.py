"""Every row of the bench runs once, at sizes that cost nothing; how fast it is, no test says."""

import pytest
from speed.report import Result, table
from speed.rows import every_row
from speed.size import TINY
from speed.timing import INTERLOCK, Figure, take_turns

ROWS = every_row(TINY)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.group}: {row.name}" for row in ROWS])
def test_a_row_gives_one_figure_for_each_contender_and_round(row):
    rounds = []
    samples = take_turns(row, lambda: rounds.append(None))
    assert {name: len(values) for name, values in samples.items()} == dict.fromkeys(row.rounds, row.repeats)
    assert len(rounds) == row.repeats * len(row.rounds)
    assert INTERLOCK in samples


def test_a_ratio_is_taken_round_by_round():
    row = ROWS[0]
    result = Result.of(row, {"interlock": [1.0, 2.0, 4.0], "vllm": [10.0, 40.0, 40.0], "floor": [1.0, 1.0, 1.0]})
    assert result.faster == Figure(10.0, 10.0, 15.0)
    assert result.above_floor == Figure(2.0, 1.5, 3.0)
    assert result.above_responses is None
    dialect = Result.of(row, {"interlock": [1.0, 3.0, 4.0], "responses": [1.0, 2.0, 2.0]})
    assert dialect.plain()["above_responses"] == {"median": 1.5, "low": 1.25, "high": 1.75}
    assert result.plain()["figures"]["interlock"] == {"median": 2.0, "low": 1.5, "high": 3.0}
    assert table([result]).row_count == 1


def test_rows_are_told_apart_by_group_and_name():
    assert len({(row.group, row.name) for row in ROWS}) == len(ROWS)
