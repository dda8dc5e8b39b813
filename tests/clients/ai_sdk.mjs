// The AI SDK, with its OpenAI provider or, by the argument, with that of Open Responses or of Anthropic.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const providers = {
  anthropic: (baseURL) => createAnthropic({ baseURL, apiKey })(model),
  openai: (baseURL) => createOpenAI({ baseURL, apiKey }).responses(model),
  "open-responses": (baseURL) => createOpenResponses({ name: "interlock", url: `${baseURL}/responses`, apiKey })(model),
};
const getWeather = tool({
  description: weather.description,
  inputSchema: z.object({ city: z.string() }),
  execute: async (given) => {
    calls.push(given);
    return weather.answer;
  },
});
await each(async (baseURL) => {
  const errors = [];
  const result = streamText({
    model: providers[process.argv[2] ?? "openai"](baseURL),
    prompt: question,
    ...(process.env.STORE === "no" && {
      providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"] } },
    }),
    tools: { [weather.name]: getWeather },
    stopWhen: isStepCount(4),
    onError: ({ error }) => errors.push(error),
  });
  await result.consumeStream();
  if (errors.length > 0) throw errors[0];
  return await result.text;
});
