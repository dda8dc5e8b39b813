// An agent with one tool, on the openai package: it streams, runs the calls, and sends their results until the model only answers.
//
//     npm install openai
//     OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none node agent.mjs
//
// `interlock serve` is such a server, and needs no model. agent.test.mjs tests the agent.

import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";

const model = process.env.MODEL ?? "interlock-embedded";
const functions = { get_weather: ({ city }) => `18 °C and sunny in ${city}` };
const tools = [
  {
    type: "function",
    name: "get_weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false },
    strict: true,
  },
];

/** Answer a question, and pass what the model writes and calls to `write`. */
export async function agent(client, question, write = () => {}) {
  let request = { model, tools, input: question };
  for (;;) {
    const stream = client.responses.stream(request);
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") write(event.delta);
    }
    const response = await stream.finalResponse();
    if (response.status !== "completed") {
      throw new Error(response.error?.message ?? response.incomplete_details?.reason ?? `the response is ${response.status}`);
    }
    if (response.output_text) write("\n");
    const calls = response.output.filter((item) => item.type === "function_call");
    if (calls.length === 0) return response.output_text;
    const outputs = calls.map(async ({ call_id, name, arguments: given }) => {
      write(`${name} ${given}\n`);
      return { type: "function_call_output", call_id, output: await functions[name](JSON.parse(given)) };
    });
    request = { model, tools, input: await Promise.all(outputs), previous_response_id: response.id };
  }
}

// Not where a test imports the agent.
if (realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  await agent(new OpenAI(), process.argv[2] ?? "Get the weather of: Berlin", (text) => process.stdout.write(text));
}
