// openai-node: streams, answers the call, and continues by `previous_response_id`.

import OpenAI from "openai";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", name: weather.name, description: weather.description, parameters, strict: true }];

await each(async (baseURL) => {
  const client = new OpenAI({ baseURL, apiKey });
  let request = { model, input: question, tools };
  for (;;) {
    const stream = client.responses.stream(request);
    for await (const event of stream) {
      if (event.type === "response.function_call_arguments.done") calls.push(JSON.parse(event.arguments));
    }
    const response = await stream.finalResponse();
    const asked = response.output.filter((item) => item.type === "function_call");
    if (asked.length === 0) return response.output_text;
    const input = asked.map(({ call_id }) => ({ type: "function_call_output", call_id, output: weather.answer }));
    request = { model, input, tools, previous_response_id: response.id };
  }
});
