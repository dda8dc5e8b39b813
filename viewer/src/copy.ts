// Copying: the request as a curl command, and text to the clipboard.

import type { Stream } from "./stream";

/** Return a text as one word of a POSIX shell. */
const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Return the request of a stream as a command, without an API key. */
export function curl(stream: Stream): string | null {
  const { request } = stream;
  if (!request) return null;
  const parts = ["curl", "-sN", ...(request.method === "GET" ? [] : ["-X", request.method]), quoted(request.url)];
  parts.push("-H", '"Authorization: Bearer $OPENAI_API_KEY"');
  if (request.body !== null) parts.push("-H", quoted("Content-Type: application/json"), "-d", quoted(request.body));
  return parts.join(" ");
}

export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without a secure context there is no clipboard, but a selection can still be copied.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
