// Tests of the agent in agent.mjs; a mock stands for its model. They need mock.mjs, and `interlock`.
//
//     npm install openai
//     node --test agent.test.mjs

import assert from "node:assert/strict";
import { after, it } from "node:test";
import OpenAI from "openai";
import { agent } from "./agent.mjs";
import { mockModel, startMock } from "./mock.mjs";

const { url, stop } = await startMock();
after(stop);
const clean = { problems: [], unoffered: [], unused: [] };
const call = { name: "get_weather", arguments: { city: "Berlin" } };

async function ask(test, rules) {
  const mock = await mockModel(url, test, rules);
  const answer = await agent(new OpenAI({ baseURL: mock.baseURL, apiKey: "any" }), "How is the weather in Berlin?");
  return { answer, requests: await mock.requests(), verdict: await mock.verdict() };
}

it("gives the model the result of its call", async () => {
  const { answer, requests, verdict } = await ask("call", [{ when: "weather", steps: [{ calls: [call] }, { says: "Warm." }] }]);
  assert.deepEqual([answer, verdict], ["Warm.", clean]);
  assert.deepEqual(requests[1].body.input.map((item) => item.output), ["18 °C and sunny in Berlin"]);
});

it("asks again after an error", async () => {
  const steps = [{ fails: { status: 503, retry_after: 0 } }, { calls: [call] }, { disconnects: true }, { says: "Warm." }];
  const { answer, requests, verdict } = await ask("error", [{ when: "weather", steps }]);
  assert.deepEqual([answer, requests.length, verdict], ["Warm.", 4, clean]);
});

it("throws at an answer that is not complete", async () => {
  const ends = {
    "the response is in_progress": { stops: 6 },
    terminated: { disconnects: 6 },
    max_output_tokens: { ends: "length" },
    "The engine failed while it generated the response.": { ends: "error" },
  };
  for (const [message, end] of Object.entries(ends)) {
    await assert.rejects(ask(message, [{ steps: [{ says: "It is warm.", ...end }] }]), { message });
  }
});
