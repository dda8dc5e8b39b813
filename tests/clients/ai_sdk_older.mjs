// The AI SDK of the version in the first argument, with its provider of OpenAI (Responses or Chat) or of Anthropic.

import { z } from "zod";

import { apiKey, calls, each, model, question, weather } from "./conversation.mjs";

const [, , version, api] = process.argv;
const { stepCountIs, streamText, tool } = await import(`ai-${version}`);
const { createAnthropic } = await import(`ai-sdk-anthropic-${version - 3}`);
const { createOpenAI } = await import(`ai-sdk-openai-${version - 3}`);

const providers = {
  anthropic: (baseURL) => createAnthropic({ baseURL, apiKey })(model),
  openai: (baseURL) => createOpenAI({ baseURL, apiKey }).responses(model),
  chat: (baseURL) => createOpenAI({ baseURL, apiKey }).chat(model),
};
const execute = async (given) => {
  calls.push(given);
  return weather.answer;
};
const tools = {
  [weather.name]: tool({ description: weather.description, inputSchema: z.object({ city: z.string() }), execute }),
};
await each(async (baseURL) => {
  const errors = [];
  const onError = ({ error }) => errors.push(error);
  const result = streamText({ model: providers[api](baseURL), prompt: question, tools, stopWhen: stepCountIs(4), onError });
  await result.consumeStream();
  if (errors.length > 0) throw errors[0];
  return await result.text;
});
