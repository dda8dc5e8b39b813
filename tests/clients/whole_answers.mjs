// What the accumulators of @anthropic-ai/sdk and openai-node make of a stream, and the same answer without streaming.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

import { apiKey, model, question, weather } from "./conversation.mjs";

const baseURL = process.env.BASE_URL;
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const about = { name: weather.name, description: weather.description };
const asked = { model, max_tokens: 4096, messages: [{ role: "user", content: question }] };
const use = { ...asked, tools: [{ ...about, input_schema: schema }] };
const call = { ...asked, tools: [{ type: "function", function: { ...about, parameters: schema } }] };

const pairs = [];
const { messages } = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey });
for (const settings of [asked, use]) {
  pairs.push([await messages.stream(settings).finalMessage(), await messages.create(settings)]);
}
const { completions } = new OpenAI({ baseURL, apiKey }).chat;
for (const settings of [asked, call]) {
  const streamed = completions.stream({ ...settings, stream_options: { include_usage: true } });
  pairs.push([await streamed.finalChatCompletion(), await completions.create(settings)]);
}
console.log(JSON.stringify(pairs));
