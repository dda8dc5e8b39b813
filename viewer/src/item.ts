// An item as it is after an event, put together from its events as the table of writes says.
// Items are never changed: an event makes a new one that shares what it did not touch, so that any of them can be kept.

import type { Write } from "./lines";
import type { Lane, Stream } from "./stream";

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
type Object_ = { [name: string]: Json };

export interface Shown {
  item: Json;
  /** The text that was written last. */
  text: string;
  /** How much of it the last event added, in UTF-16 units. */
  added: number;
}

const NOTHING: Shown = { item: {}, text: "", added: 0 };
/** A built item is kept after so many events. */
const KEPT_EVERY = 512;

const isObject = (value: Json | undefined): value is Object_ => typeof value === "object" && value !== null && !Array.isArray(value);

/** The parts that stand at the place that an event names; a place far beyond the last part is not made. */
function replaced(parts: Json | undefined, at: number, change: (part: Json) => Json): Json[] {
  const list = Array.isArray(parts) ? parts.slice() : [];
  if (Number.isInteger(at) && at >= 0 && at <= list.length + 16) {
    while (list.length < at) list.push({});
    list[at] = change(list[at] ?? {});
  }
  return list;
}

function written(target: Json, write: Write, value: Json, tell: (text: string, added: number) => void): Json {
  const object = isObject(target) ? target : {};
  const to = write.to ?? "";
  if (write.op === "push") {
    const before = object[to];
    return { ...object, [to]: [...(Array.isArray(before) ? before : []), value] };
  }
  if (write.op === "append" && typeof value === "string") {
    const before = object[to];
    const text = (typeof before === "string" ? before : "") + value;
    tell(text, value.length);
    return { ...object, [to]: text };
  }
  if (typeof value === "string") tell(value, 0);
  return { ...object, [to]: value };
}

function after(shown: Shown, write: Write | undefined, body: unknown): Shown {
  if (!write || typeof body !== "object" || body === null) return { ...shown, added: 0 };
  const fields = body as Object_;
  const value = write.op === "status" ? (write.value ?? null) : fields[write.from];
  if (value === undefined) return { ...shown, added: 0 };
  if (write.op === "all") return { ...shown, item: value, added: 0 };
  const item = isObject(shown.item) ? shown.item : {};
  let { text } = shown;
  let added = 0;
  const tell = (now: string, more: number): void => {
    text = now;
    added = more;
  };
  if (!write.list) return { item: written(item, { ...write, op: write.op === "status" ? "set" : write.op }, value, write.op === "status" ? () => {} : tell), text, added };
  const at = Number(fields[write.index ?? ""]);
  const change = (part: Json): Json => (write.op === "put" ? value : written(part, write, value, tell));
  return { item: { ...item, [write.list]: replaced(item[write.list], at, change) }, text, added };
}

const kept = new WeakMap<Lane, Map<number, Shown>>();

/** The item of a lane after the event at a position of the lane, and what the event before it left. */
export function itemAt(stream: Stream, lane: Lane, position: number): { now: Shown; before: Shown } {
  let cache = kept.get(lane);
  if (!cache) kept.set(lane, (cache = new Map()));
  const build = (until: number): Shown => {
    const known = cache.get(until);
    if (known || until < 0) return known ?? NOTHING;
    let from = until;
    while (from >= 0 && !cache.has(from)) from--;
    let shown = cache.get(from) ?? NOTHING;
    for (let at = from + 1; at <= until; at++) {
      const event = lane.events.at(at);
      shown = after(shown, stream.page.writes[stream.nameOf(event)], stream.body(event));
      if (at % KEPT_EVERY === 0) cache.set(at, shown);
    }
    cache.set(until, shown);
    return shown;
  };
  const before = build(position - 1);
  return { now: build(position), before };
}
