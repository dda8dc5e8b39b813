"""The benchmark of the standalone server works: a short run measures every contender of the gateway. No times are asserted."""

import json

import bench_alone
import pytest


@pytest.mark.long
def test_a_short_run_measures_a_gateway_beside_the_forwarder(monkeypatch, tmp_path):
    short = {"GATEWAY_WINDOWS": 1, "GATEWAY_PROBES": 2, "PAUSE": 0, "WINDOW": 0.2, "SETTLE": 0.1, "GATEWAY_RATES": {2: 50}}
    short |= {"SHAPES": dict.fromkeys(bench_alone.SHAPES, 1)}
    for name, value in short.items():
        monkeypatch.setattr(bench_alone, name, value)
    monkeypatch.setattr(bench_alone, "OUT", tmp_path / "alone.json")
    monkeypatch.setattr("sys.argv", ["bench_alone.py", "gateway"])
    bench_alone.main()
    rows = json.loads((tmp_path / "gateway.json").read_text())["rows"]
    shapes = [(api, kind) for api in ("responses", "chat") for kind in ("text", "calls")]
    loads = [f"2 streams of 50 {kind} deltas a second, {api} upstream" for api, kind in shapes]
    assert [row["name"] for row in rows if row["group"] == "gateway"] == loads
    assert all({"interlock", "floor"} <= row["figures"].keys() for row in rows)
    assert all(figure["median"] >= 0 for row in rows for figure in row["figures"].values())
