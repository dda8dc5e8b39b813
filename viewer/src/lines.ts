// The types of the lines of JSON that Python makes of streams, and the reader that fetches them. See
// src/interlock/serving/view/trace.py.

export interface State {
  name: string;
  look: string;
  tool: "" | "waiting" | "running";
  box: [number, number, number, number];
}

export interface Edge {
  /** A state, or a region whose states have the edge. */
  source: string;
  dest: string;
  /** The source and dest in every state that has the edge. */
  ends: [string, string][];
  style: string;
  triggers: { name: string; events: string[] }[];
  path: string;
  text: [number, number, "start" | "end", "trigger" | "event", string][];
}

export interface Picture {
  name: string;
  width: number;
  height: number;
  up: number;
  states: State[];
  frames: { name: string; box: [number, number, number, number] }[];
  /** In groups that merge. */
  lines: { path: string; style: string; arrow: boolean; rail: boolean }[][];
  edges: Edge[];
}

export interface Write {
  op: "all" | "put" | "push" | "append" | "set" | "status";
  /** The field of the event, as names and places divided by dots; the whole event if empty. */
  from: string;
  to?: string;
  list?: string;
  index?: string;
  value?: string;
}

export interface Request {
  method: string;
  url: string;
  body: string | null;
}

export interface Head {
  version: number;
  mode: "stream" | "list";
  stream: { name: string; request?: Request } | null;
  machines: Record<string, Picture>;
  rules: Record<string, [string, string, string]>;
  deviations: Record<string, [string, string]>;
  writes: Record<string, Write[]>;
}

/** Source, trigger, dest, whether the event is the last that the edge emits, and the silent edges before it. */
export type Fired = [string, string, string, boolean, [string, string, string][]];

export interface Step {
  machine: string;
  fired: Fired[];
  states: string[];
  possible: string[];
  /** The states in words, as in a finding. */
  state: string;
}

export interface Finding {
  rule: string;
  severity: "error" | "deviation" | "not_judged";
  /** The name of the deviation; empty for an error. */
  deviation: string;
  expected: string[];
  message: string;
  /** The line of the file on which the event begins. */
  line: number | null;
}

export interface Origin {
  tokens?: [number, string][];
  text?: string;
  deltas: string[];
  framing?: [string, string, string][];
}

export interface Ending {
  status: string | null;
  legal: boolean;
  readable: boolean;
  rules: Record<string, number>;
  broken?: string;
}

export type Line =
  | ["head", Head]
  | ["lane", number, { kind: string; name: string | null; id: string | null; index: number | null }]
  | ["step", number, Step]
  | ["e", number, string, number | null, number, number | null, number, string]
  | ["f", number, Finding]
  | ["fix", number[]]
  | ["origin", number, Origin]
  | ["end", Ending]
  | ["list", StreamEntry[]];

export interface StreamEntry {
  number: number;
  id: string;
  model: string;
  /** Seconds since 1970. */
  started: number;
  ended: boolean;
  bytes: number;
  /** Milliseconds from the start to the last chunk. */
  duration: number;
  /** Whether only its beginning is stored. */
  truncated: boolean;
  /** The number of findings of each severity; this and the rest are absent while the stream runs. */
  findings?: Counts;
  ending?: Ending;
  /** Of the input and of the output. */
  tokens?: [number | null, number | null];
  words?: string;
}

/** The number of findings of each severity. */
export type Counts = Partial<Record<Finding["severity"], number>>;

/** How long to block the page at a time, in milliseconds. */
const SLICE = 12;

const rest = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

/** Yield the text of the lines, from the document or from the server. */
async function* texts(): AsyncGenerator<string> {
  const packed = document.getElementById("lines");
  let body: ReadableStream<Uint8Array>;
  if (packed) {
    const bytes = Uint8Array.from(atob((packed.textContent ?? "").trim()), (character) => character.charCodeAt(0));
    packed.textContent = "";
    body = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  } else {
    const from = document.querySelector<HTMLMetaElement>("meta[name=interlock-lines]");
    const answer = await fetch((from?.content ?? "lines") + location.search, { cache: "no-store" });
    if (!answer.ok || !answer.body) throw new Error(`Cannot load the stream: ${answer.status} ${answer.statusText}`);
    body = answer.body;
  }
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    yield decoder.decode(value, { stream: true });
  }
}

/**
 * Read the lines without blocking the page.
 * @param take - Called with each line.
 * @param pause - Called before the page is given time to draw.
 */
export async function read(take: (line: Line) => void, pause: () => void): Promise<void> {
  let pending: string[] = [];
  let until = performance.now() + SLICE;
  for await (const text of texts()) {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      pending.push(text.slice(start, end));
      take(JSON.parse(pending.join("")) as Line);
      pending = [];
      start = end + 1;
      if (performance.now() > until) {
        pause();
        await rest();
        until = performance.now() + SLICE;
      }
    }
    if (start < text.length) pending.push(text.slice(start));
    pause();
  }
}
