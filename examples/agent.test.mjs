// Tests of an agent with one tool, on the openai package; a mock stands for its model. They need mock.mjs, and `interlock`.
//
//     npm install openai
//     node --test agent.test.mjs

import assert from "node:assert/strict";
import { after, it } from "node:test";
import OpenAI from "openai";
import { mockModel, startMock } from "./mock.mjs";

// The agent. Yours is in a file of its own, and takes its client or a base URL.

const functions = { get_weather: ({ city }) => `18 °C and sunny in ${city}` };
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", name: "get_weather", parameters, strict: true }];

async function agent(client, question) {
  for (let request = { model: "gpt-5", tools, input: question }; ; ) {
    const response = await client.responses.stream(request).finalResponse();
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return response.output_text;
    const input = calls.map(({ name, call_id, arguments: given }) => {
      return { type: "function_call_output", call_id, output: functions[name](JSON.parse(given)) };
    });
    request = { model: "gpt-5", tools, input, previous_response_id: response.id };
  }
}

// The tests.

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
