// A mock of a model server for tests in JavaScript: it starts one, and gives each test its own URL, rules and verdict. And a judge of
// the streams that your own server sends.
// Copy this file; it needs Node 20 or newer, no package, and the command `interlock`; startMock also needs a POSIX `sh`, which Windows
// lacks. docs/guides/mock.md explains the rules.

import { spawn, spawnSync } from "node:child_process";

/**
 * @typedef {{ text?: string, pattern?: string, instructions?: string, tools?: string[], model?: string, turn?: number }} When
 * @typedef {{ name: string, arguments?: object | string, returns?: string }} Call
 * @typedef {{ status: number, message?: string, retry_after?: number }} Failure
 * @typedef {"stop" | "length" | "content_filter" | "abort" | "error"} Ending
 * @typedef {{ input_tokens?: number, cached_tokens?: number, cache_write_tokens?: number, output_tokens?: number,
 *   reasoning_tokens?: number }} Tokens
 * @typedef {{ waits?: number, between?: number, thinks?: string, says?: string | object, refuses?: string, calls?: Call[], writes?: string,
 *   uses?: Tokens, ends?: Ending, fails?: number | Failure, disconnects?: number | boolean, stops?: number | boolean, breaks?: string }} Step
 * @typedef {{ when?: string | When, family?: string, per?: "conversation" | "server", steps: Step[] }} Rule
 * @typedef {{ path: string, headers: Record<string, string>, body: any, model: string, text: string, instructions: string, tools: string[], turn: number,
 *   rule: string | null, steps: number[], problem: string, unoffered: string[], unanswered: string[], stream: string | null, errors: object[] }} ReceivedRequest
 * @typedef {{ problems: string[], unoffered: string[], unused: string[] }} Verdict
 */

// A server whose tests have rules of their own. It ends with the standard input of this shell, which closes with the process of Node,
// however that ends; and the shell ends with the server.
const SERVE = `exec 3<&0
echo '{"rules": []}' | "$0" serve --port 0 --script - & server=$!
{ read line <&3; kill $server; } & wait $server
code=$?; kill $!; exit $code`;

const installed = () => process.env["INTERLOCK"] ?? "interlock";

/** @param {string} command */
const notFound = (command) => `${command} is not found: install Interlock with its extra "serve", or set INTERLOCK to the path of the command`;

/**
 * Start the server on a free port. `stop` ends it, and so does the end of this process, which it does not keep alive.
 * @returns {Promise<{ url: string, stop: () => void }>}
 */
export async function startMock(command = installed()) {
  const server = spawn("sh", ["-c", SERVE, command], { stdio: ["pipe", "ignore", "pipe"] });
  const stop = () => void server.stdin.destroy();
  /** @type {string} */
  const url = await new Promise((resolve, reject) => {
    let log = "";
    server.once("error", reject);
    server.once("exit", (code) => {
      reject(new Error(code === 127 ? notFound(command) : `${command} has ended: ${log}`));
    });
    server.stderr.on("data", (text) => {
      const ready = (log += text).match(/ at (http:\S+)\/v1/); // Serving … at http://127.0.0.1:41237/v1
      if (ready?.[1]) resolve(ready[1]);
    });
  });
  server.stderr.removeAllListeners("data").resume(); // or a full pipe would stop the server
  for (const pipe of [server.stdin, server.stderr]) /** @type {import("node:net").Socket} */ (pipe).unref();
  server.unref();
  return { url, stop };
}

/**
 * Begin a test: give it rules, and return its base URLs, and functions for the requests so far and the verdict on them.
 * @param {string} url
 * @param {string} test
 * @param {Rule[]} rules
 */
export async function mockModel(url, test, rules) {
  const own = `${url}/${encodeURIComponent(test)}-${crypto.randomUUID()}`; // a name that no other test has
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ rules }, (_, value) => {
    if (value instanceof RegExp) throw new TypeError(`write { pattern: "…" } in place of ${value}`); // JSON has {} for it
    return value;
  });
  const put = await fetch(`${own}/interlock/script`, { method: "PUT", headers, body });
  if (!put.ok) throw new Error((await put.json()).error.message);
  /** @returns {Promise<{ requests: ReceivedRequest[], verdict: Verdict }>} */
  const received = async () => (await fetch(`${own}/interlock/requests`)).json();
  return {
    baseURL: `${own}/v1`, // for openai, the AI SDK and Codex
    anthropicURL: own, // for @anthropic-ai/sdk and Claude Code
    requests: async () => (await received()).requests,
    verdict: async () => (await received()).verdict,
  };
}

/**
 * Throw an error with the findings of `interlock check`, whose options may follow, if a stream is not legal.
 * @param {string | Uint8Array} stream
 * @param {string[]} options
 */
export function assertLegal(stream, ...options) {
  const command = installed();
  const { error, status, stdout, stderr } = spawnSync(command, ["check", "-", ...options], { input: stream, encoding: "utf8" });
  if (status !== 0) throw new Error(stdout || stderr || notFound(command), { cause: error });
}
