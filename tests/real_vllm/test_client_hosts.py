"""A host in vLLM of the tests of clients starts and writes its turns; `make test-clients`, which has four, runs by hand."""

import httpx
from clients import hosts

from interlock.parsers.families.reference_encoders import WrittenItem


def test_a_host_of_the_clients_in_vllm_writes_its_turns(tmp_path):
    turn = [WrittenItem("reasoning", "Hm."), WrittenItem("message", "one two STOPHERE three")]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "stop": ["STOPHERE"]}
    with hosts.InVllm("gpt_oss-turns", hosts.harmony, "question", tmp_path) as started, started([turn]) as scripted:
        completion = httpx.post(f"{scripted.url}/v1/chat/completions", json=body, timeout=120).json()
        prompts = scripted.prompts()
    message = completion["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "one two ")
    assert len(prompts) == 1
