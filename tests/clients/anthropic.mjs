// @anthropic-ai/sdk: its accumulator of streams, tools, and thinking that is sent back with its signature.

import Anthropic from "@anthropic-ai/sdk";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: weather.name, description: weather.description, input_schema }];
const thinking = { type: "enabled", budget_tokens: 2048 };

await each(async (baseURL) => {
  const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey });
  const messages = [{ role: "user", content: question }];
  for (;;) {
    const message = await client.messages.stream({ model, max_tokens: 4096, messages, tools, thinking }).finalMessage();
    const uses = message.content.filter((block) => block.type === "tool_use");
    if (message.stop_reason !== "tool_use") return message.content.map((block) => block.text ?? "").join("");
    calls.push(...uses.map((use) => use.input));
    const results = uses.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: weather.answer }));
    messages.push({ role: "assistant", content: message.content }, { role: "user", content: results });
  }
});
