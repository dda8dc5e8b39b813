"""The tools of the plugin: a setting in the environment reaches them, and gpt-oss reads their description."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import httpx
import pytest
from playing import body, judged, stream
from servers import HEADERS, SEARCH_PORT
from turns import BROWSER, DONE, PYTHON, RUN, SEARCH, Turn

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


def test_a_search_of_the_plugin_finds_what_its_provider_finds(server):
    class SearXng(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            found = {"title": "Rome", "url": "https://rome.example/", "content": "A city."}
            self.wfile.write(json.dumps({"results": [found]}).encode())

        def log_message(self, *_):
            pass

    paths = []
    fields = {"tools": [BROWSER], "include": ["web_search_call.action.sources"]}
    rounds = [f'{SEARCH}{{"query": "rome"}}<|call|>', DONE]
    with HTTPServer(("127.0.0.1", SEARCH_PORT), SearXng) as provider:
        Thread(target=provider.serve_forever).start()
        data = stream(server.url, body("gpt_oss", Turn("", rounds, body=fields)), **HEADERS)
        provider.shutdown()
    search, message = judged(data, "open_responses")[-1]["response"]["output"]
    assert (search["status"], search["action"]["sources"], message["type"]) == (
        "completed",
        [{"type": "url", "url": "https://rome.example/"}],
        "message",
    )
    assert [path.partition("?")[0] for path in paths] == ["/search"]


def test_the_prompt_of_gpt_oss_describes_the_sandbox(server):
    def prompt_tokens(**fields):
        request = body("gpt_oss", Turn("", [DONE], body=fields))
        return httpx.post(f"{server.url}/v1/responses", json=request, headers=HEADERS, timeout=60).json()["usage"]["input_tokens"]

    assert prompt_tokens(tools=[PYTHON]) > prompt_tokens() + 100
