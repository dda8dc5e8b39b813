// openai-node's helper for streams of Chat Completions, and tools.

import OpenAI from "openai";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", function: { name: weather.name, description: weather.description, parameters, strict: true } }];

await each(async (baseURL) => {
  const client = new OpenAI({ baseURL, apiKey });
  const messages = [{ role: "user", content: question }];
  for (;;) {
    const { choices } = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
    const { finish_reason, message } = choices[0];
    if (finish_reason !== "tool_calls") return message.content;
    messages.push(message);
    for (const call of message.tool_calls) {
      calls.push(JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content: weather.answer });
    }
  }
});
