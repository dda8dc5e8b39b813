"""The code interpreter of the plugin: a setting in the environment reaches it, and gpt-oss reads its description."""

import httpx
import pytest
from playing import body, judged, stream
from servers import HEADERS
from turns import DONE, PYTHON, RUN, Turn

pytestmark = pytest.mark.parametrize("server", ["open-responses"], indirect=True)


def test_code_runs_in_the_sandbox_of_the_plugin(server):
    rounds = [f"{RUN}x = 6<|call|>", f"{RUN}x * 7<|call|>", DONE]
    fields = {"tools": [PYTHON], "include": ["code_interpreter_call.outputs"]}
    response = judged(stream(server.url, body("gpt_oss", Turn("", rounds, body=fields)), **HEADERS), "open_responses")[-1][
        "response"
    ]
    first, second, _ = response["output"]
    assert (first["container_id"], first["outputs"]) == (second["container_id"], [{"type": "logs", "logs": ""}])
    assert second["outputs"] == [{"type": "logs", "logs": "42\n"}]


def test_the_prompt_of_gpt_oss_describes_the_sandbox(server):
    def prompt_tokens(**fields):
        request = body("gpt_oss", Turn("", [DONE], body=fields))
        return httpx.post(f"{server.url}/v1/responses", json=request, headers=HEADERS, timeout=60).json()["usage"]["input_tokens"]

    assert prompt_tokens(tools=[PYTHON]) > prompt_tokens() + 100
