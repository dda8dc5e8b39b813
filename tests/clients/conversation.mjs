// What every client is asked to do: call a tool, and use its answer.

const { BASE_URL, MODEL } = process.env;

export const model = MODEL;
export const apiKey = "none";
export const question = "Get the weather of: Berlin";
export const weather = {
  name: "get_weather",
  description: "The weather of a city.",
  answer: "18 °C and sunny",
};
export const calls = [];

// Converses with each server of BASE_URL, and prints what the test compares: the arguments of each call that was made, and
// the last text.
export async function each(converse) {
  for (const baseURL of BASE_URL.split(" ")) {
    calls.length = 0;
    try {
      const text = await converse(baseURL);
      console.log(JSON.stringify({ calls, text }));
    } catch (error) {
      console.error(error);
      console.log(JSON.stringify({ error: String(error) }));
      process.exitCode = 1;
    }
  }
}
