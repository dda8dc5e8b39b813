// JavaScript clients, each of which must call a tool and use its answer: `node node_clients.mjs NAME [ARGUMENT …]`.
//
// Each function converses with the server at a URL, and returns its answer: the last text.

import { z } from "zod";

const { BASE_URL, MODEL, STORE } = process.env;
const API_KEY = "none";
const QUESTION = "Get the weather of: Berlin";
const WEATHER = "18 °C and sunny";
const NAME = "get_weather";
const DESCRIPTION = "The weather of a city.";
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const CITY = z.object({ city: z.string() });

const calls = [];

function getWeather(given) {
  calls.push(given);
  return WEATHER;
}

// The Agents SDK: its own loop over turns and tools, streamed.
async function agents(baseURL) {
  const { Agent, OpenAIProvider, Runner, tool } = await import("@openai/agents");
  const tools = [tool({ name: NAME, description: DESCRIPTION, parameters: CITY, execute: getWeather })];
  const agent = new Agent({ name: "Forecaster", instructions: "Answer by the tools.", model: MODEL, tools });
  const modelProvider = new OpenAIProvider({ baseURL, apiKey: API_KEY, useResponses: true });
  const result = await new Runner({ modelProvider, tracingDisabled: true }).run(agent, QUESTION, { stream: true });
  await result.completed;
  return result.finalOutput;
}

// The AI SDK, of its newest version or an older one, with its provider of OpenAI (Responses or Chat), Open Responses or Anthropic.
async function aiSdk(baseURL, api, version) {
  const provider = version ? (name) => `ai-sdk-${name}-${version - 3}` : (name) => `@ai-sdk/${name}`;
  const { stepCountIs, streamText, tool } = await import(version ? `ai-${version}` : "ai");
  const apiKey = API_KEY;
  const models = {
    anthropic: async () => (await import(provider("anthropic"))).createAnthropic({ baseURL, apiKey })(MODEL),
    chat: async () => (await import(provider("openai"))).createOpenAI({ baseURL, apiKey }).chat(MODEL),
    openai: async () => (await import(provider("openai"))).createOpenAI({ baseURL, apiKey }).responses(MODEL),
    "open-responses": async () => {
      const { createOpenResponses } = await import(provider("open-responses"));
      return createOpenResponses({ name: "interlock", url: `${baseURL}/responses`, apiKey })(MODEL);
    },
  };
  const unstored = { providerOptions: { openai: { store: false, include: ["reasoning.encrypted_content"] } } };
  const errors = [];
  const result = streamText({
    model: await models[api](),
    prompt: QUESTION,
    ...(STORE === "no" && unstored),
    tools: { [NAME]: tool({ description: DESCRIPTION, inputSchema: CITY, execute: getWeather }) },
    stopWhen: stepCountIs(4),
    onError: ({ error }) => errors.push(error),
  });
  await result.consumeStream();
  if (errors.length > 0) throw errors[0];
  return await result.text;
}

async function anthropicClient(baseURL) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  return new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey: API_KEY });
}

async function openaiClient(baseURL) {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ baseURL, apiKey: API_KEY });
}

// @anthropic-ai/sdk: its accumulator of streams, tools, and thinking that is sent back with its signature.
async function anthropic(baseURL) {
  const client = await anthropicClient(baseURL);
  const tools = [{ name: NAME, description: DESCRIPTION, input_schema: SCHEMA }];
  const thinking = { type: "enabled", budget_tokens: 2048 };
  const messages = [{ role: "user", content: QUESTION }];
  for (;;) {
    const settings = { model: MODEL, max_tokens: 4096, messages, tools, thinking };
    const message = await client.messages.stream(settings).finalMessage();
    const uses = message.content.filter((block) => block.type === "tool_use");
    if (message.stop_reason !== "tool_use") return message.content.map((block) => block.text ?? "").join("");
    const results = uses.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: getWeather(input) }));
    messages.push({ role: "assistant", content: message.content }, { role: "user", content: results });
  }
}

// The tool runner of @anthropic-ai/sdk, which streams, and sends a thread until the server refuses it.
async function anthropicRunner(baseURL) {
  const { betaTool } = await import("@anthropic-ai/sdk/helpers/beta/json-schema");
  const client = await anthropicClient(baseURL);
  const tools = [betaTool({ name: NAME, description: DESCRIPTION, inputSchema: SCHEMA, run: getWeather })];
  const messages = [{ role: "user", content: QUESTION }];
  const runner = client.beta.messages.toolRunner({ model: MODEL, max_tokens: 4096, messages, tools, stream: true });
  let message;
  for await (const stream of runner) message = await stream.finalMessage();
  return message.content.map((block) => block.text ?? "").join("");
}

// openai-node: streams, answers the call, and continues by `previous_response_id`.
async function openai(baseURL) {
  const client = await openaiClient(baseURL);
  const parameters = { ...SCHEMA, additionalProperties: false };
  const tools = [{ type: "function", name: NAME, description: DESCRIPTION, parameters, strict: true }];
  let request = { model: MODEL, input: QUESTION, tools };
  for (;;) {
    const stream = client.responses.stream(request);
    for await (const event of stream) {
      if (event.type === "response.function_call_arguments.done") getWeather(JSON.parse(event.arguments));
    }
    const response = await stream.finalResponse();
    const asked = response.output.filter((item) => item.type === "function_call");
    if (asked.length === 0) return response.output_text;
    const input = asked.map(({ call_id }) => ({ type: "function_call_output", call_id, output: WEATHER }));
    request = { model: MODEL, input, tools, previous_response_id: response.id };
  }
}

// openai-node's helper for streams of Chat Completions, and tools.
async function openaiChat(baseURL) {
  const client = await openaiClient(baseURL);
  const parameters = { ...SCHEMA, additionalProperties: false };
  const tools = [{ type: "function", function: { name: NAME, description: DESCRIPTION, parameters, strict: true } }];
  const messages = [{ role: "user", content: QUESTION }];
  for (;;) {
    const { choices } = await client.chat.completions.stream({ model: MODEL, messages, tools }).finalChatCompletion();
    const { finish_reason, message } = choices[0];
    if (finish_reason !== "tool_calls") return message.content;
    messages.push(message);
    for (const call of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: getWeather(JSON.parse(call.function.arguments)) });
    }
  }
}

// What the accumulators of @anthropic-ai/sdk and openai-node make of a stream, each with the same answer without streaming.
async function wholeAnswers(baseURL) {
  const asked = { model: MODEL, max_tokens: 4096, messages: [{ role: "user", content: QUESTION }] };
  const about = { name: NAME, description: DESCRIPTION };
  const use = { ...asked, tools: [{ ...about, input_schema: SCHEMA }] };
  const call = { ...asked, tools: [{ type: "function", function: { ...about, parameters: SCHEMA } }] };
  const pairs = [];
  const { messages } = await anthropicClient(baseURL);
  for (const settings of [asked, use]) {
    pairs.push([await messages.stream(settings).finalMessage(), await messages.create(settings)]);
  }
  const { completions } = (await openaiClient(baseURL)).chat;
  for (const settings of [asked, call]) {
    const streamed = completions.stream({ ...settings, stream_options: { include_usage: true } });
    pairs.push([await streamed.finalChatCompletion(), await completions.create(settings)]);
  }
  return pairs;
}

const CLIENTS = { agents, aiSdk, anthropic, anthropicRunner, openai, openaiChat, wholeAnswers };

// Converse with each server of BASE_URL; print the arguments of each call, and the answer.
const [, , name, ...rest] = process.argv;
for (const baseURL of BASE_URL.split(" ")) {
  calls.length = 0;
  try {
    const answer = await CLIENTS[name](baseURL, ...rest);
    console.log(JSON.stringify({ calls, answer }));
  } catch (error) {
    console.error(error);
    console.log(JSON.stringify({ error: String(error) }));
    process.exitCode = 1;
  }
}
