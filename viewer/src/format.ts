// The formats of numbers and names on the page.

export const short = (name: string): string => name.replace(/^response\./, "");

export const count = (value: number): string => value.toLocaleString("en-US");

export const bytes = (value: number): string =>
  value < 1000 ? `${value} B` : value < 1e6 ? `${(value / 1000).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;

export const seconds = (milliseconds: number): string =>
  milliseconds < 1000 ? `${milliseconds.toFixed(0)} ms` : `${(milliseconds / 1000).toFixed(milliseconds < 1e4 ? 2 : 1)} s`;

export const plural = (number: number, what: string): string => `${count(number)} ${what}${number === 1 ? "" : "s"}`;

const HUES: Record<string, number> = {
  response: 215,
  message: 212,
  reasoning: 268,
  function_call: 172,
  custom_tool_call: 190,
  mcp_call: 28,
  mcp_list_tools: 45,
  mcp_approval_request: 60,
  code_interpreter_call: 135,
  web_search_call: 330,
  file_search_call: 300,
  image_generation_call: 350,
  text: 212,
  content: 212,
  thinking: 268,
  tool_use: 172,
  tool_call: 172,
  mcp_tool_use: 28,
  mcp_tool_result: 45,
  server_tool_use: 135,
};

/** Return the hue of a kind of item; an unknown kind has one of its own, always the same. */
export function hue(kind: string): number {
  const hue = HUES[kind];
  if (hue !== undefined) return hue;
  let sum = 7;
  for (const character of kind) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) % 360;
  return sum;
}
