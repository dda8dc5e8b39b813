// What every client is asked to do: call a tool, and use its answer.

const { BASE_URL, MODEL } = process.env;

export const baseURL = BASE_URL;
export const model = MODEL;
export const apiKey = "none";
export const question = "Get the weather of: Berlin";
export const weather = {
  name: "get_weather",
  description: "The weather of a city.",
  answer: "18 °C and sunny",
};

// Prints what the test compares: the arguments of each call that was made, and the last text.
export function report(calls, text) {
  console.log(JSON.stringify({ calls, text }));
}
