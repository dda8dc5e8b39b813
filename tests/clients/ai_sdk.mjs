// The AI SDK, with its OpenAI provider or, by the argument `open-responses`, with that of Open Responses.

import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { apiKey, baseURL, model, question, report, weather } from "./conversation.mjs";

const providers = {
  openai: () => createOpenAI({ baseURL, apiKey }).responses(model),
  "open-responses": () => createOpenResponses({ name: "interlock", url: `${baseURL}/responses`, apiKey })(model),
};
const calls = [];
const result = streamText({
  model: providers[process.argv[2] ?? "openai"](),
  prompt: question,
  ...(process.env.STORE === "no" && {
    providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"] } },
  }),
  tools: {
    [weather.name]: tool({
      description: weather.description,
      inputSchema: z.object({ city: z.string() }),
      execute: async (given) => {
        calls.push(given);
        return weather.answer;
      },
    }),
  },
  stopWhen: isStepCount(4),
  onError: ({ error }) => {
    console.error(error);
    process.exitCode = 1;
  },
});
report(calls, await result.text);
