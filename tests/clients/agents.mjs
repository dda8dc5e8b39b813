// The Agents SDK: its own loop over turns and tools, streamed.

import { Agent, OpenAIProvider, Runner, tool } from "@openai/agents";
import { z } from "zod";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const getWeather = tool({
  name: weather.name,
  description: weather.description,
  parameters: z.object({ city: z.string() }),
  execute: async (given) => {
    calls.push(given);
    return weather.answer;
  },
});
const agent = new Agent({ name: "Forecaster", instructions: "Answer by the tools.", model, tools: [getWeather] });
await each(async (baseURL) => {
  const runner = new Runner({ modelProvider: new OpenAIProvider({ baseURL, apiKey, useResponses: true }), tracingDisabled: true });
  const result = await runner.run(agent, question, { stream: true });
  await result.completed;
  return result.finalOutput;
});
