// An agent with one tool, on the openai package: it streams, runs the calls, and sends their results until the model only answers.
//
//     npm install openai
//     OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none node agent.mjs "Get the weather of: Berlin"
//
// `interlock serve` is such a server, and needs no model.

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

const client = new OpenAI();
let request = { model, tools, input: process.argv[2] };
for (;;) {
  const stream = client.responses.stream(request);
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
  }
  const response = await stream.finalResponse();
  if (response.status !== "completed") {
    throw new Error(response.error?.message ?? response.incomplete_details?.reason ?? response.status);
  }
  if (response.output_text) console.log();
  const calls = response.output.filter((item) => item.type === "function_call");
  if (calls.length === 0) break;
  const input = calls.map(({ call_id, name, arguments: given }) => {
    console.log(`${name} ${given}`);
    return { type: "function_call_output", call_id, output: functions[name](JSON.parse(given)) };
  });
  request = { model, tools, input, previous_response_id: response.id };
}
