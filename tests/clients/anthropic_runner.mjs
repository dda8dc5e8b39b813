// The tool runner of @anthropic-ai/sdk, which streams, and sends a thread until the server refuses it.

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const inputSchema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const run = (given) => {
  calls.push(given);
  return weather.answer;
};
const tool = betaTool({ name: weather.name, description: weather.description, inputSchema, run });

await each(async (baseURL) => {
  const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey });
  const messages = [{ role: "user", content: question }];
  const runner = client.beta.messages.toolRunner({ model, max_tokens: 4096, messages, tools: [tool], stream: true });
  let message;
  for await (const stream of runner) message = await stream.finalMessage();
  return message.content.map((block) => block.text ?? "").join("");
});
