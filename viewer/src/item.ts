// An item as it is after an event, built from its events. The page's data has a table of what each event writes.
// Items are immutable: an event makes a new one that shares the unchanged parts, so that every snapshot can be cached.

import type { Write } from "./lines";
import type { Lane, Stream } from "./stream";

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
type Object_ = { [name: string]: Json };

export interface Snapshot {
  item: Json;
  /** The text that was written last. */
  text: string;
  /** The length of what the last event added, in UTF-16 units. */
  added: number;
}

const EMPTY: Snapshot = { item: {}, text: "", added: 0 };
/** The number of events between two snapshots that stay in the cache. */
const CACHE_EVERY = 512;

const isObject = (value: Json | undefined): value is Object_ => typeof value === "object" && value !== null && !Array.isArray(value);

/** Return the parts with one of them changed; an index far beyond the last part is ignored. */
function replacePart(parts: Json | undefined, at: number, change: (part: Json) => Json): Json[] {
  const list = Array.isArray(parts) ? parts.slice() : [];
  if (Number.isInteger(at) && at >= 0 && at <= list.length + 16) {
    while (list.length < at) list.push({});
    list[at] = change(list[at] ?? {});
  }
  return list;
}

function applyWrite(target: Json, write: Write, value: Json, report: (text: string, added: number) => void): Json {
  const object = isObject(target) ? target : {};
  const to = write.to ?? "";
  if (write.op === "push") {
    const before = object[to];
    return { ...object, [to]: [...(Array.isArray(before) ? before : []), value] };
  }
  if (write.op === "append" && typeof value === "string") {
    const before = object[to];
    const text = (typeof before === "string" ? before : "") + value;
    report(text, value.length);
    return { ...object, [to]: text };
  }
  if (typeof value === "string") report(value, 0);
  return { ...object, [to]: value };
}

/** Return what is at a path of names and places, divided by dots. */
function valueAt(value: Json | undefined, path: string): Json | undefined {
  for (const name of path ? path.split(".") : []) {
    const inner: Json | undefined = Array.isArray(value) ? value[Number(name)] : isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    value = inner;
  }
  return value;
}

function applyEvent(snapshot: Snapshot, writes: Write[], body: unknown): Snapshot {
  const none = { ...snapshot, added: 0 };
  if (typeof body !== "object" || body === null) return none;
  return writes.reduce((now, write) => applyOne(now, write, body as Object_), none);
}

function applyOne(snapshot: Snapshot, write: Write, fields: Object_): Snapshot {
  const value = write.op === "status" ? (write.value ?? null) : valueAt(fields, write.from);
  if (value === undefined) return snapshot;
  if (write.op === "all") return { ...snapshot, item: value };
  const item = isObject(snapshot.item) ? snapshot.item : {};
  let { text, added } = snapshot;
  const report = (now: string, more: number): void => {
    text = now;
    added = more;
  };
  if (!write.list) return { item: applyWrite(item, { ...write, op: write.op === "status" ? "set" : write.op }, value, write.op === "status" ? () => {} : report), text, added };
  const at = Number(fields[write.index ?? ""]);
  const change = (part: Json): Json => (write.op === "put" ? value : applyWrite(part, write, value, report));
  return { item: { ...item, [write.list]: replacePart(item[write.list], at, change) }, text, added };
}

const caches = new WeakMap<Lane, Map<number, Snapshot>>();

/** Return the item of a lane after the event at a position of the lane, and as it was before that event. */
export function itemAt(stream: Stream, lane: Lane, position: number): { now: Snapshot; before: Snapshot } {
  let cache = caches.get(lane);
  if (!cache) caches.set(lane, (cache = new Map()));
  const build = (until: number): Snapshot => {
    const cached = cache.get(until);
    if (cached || until < 0) return cached ?? EMPTY;
    let from = until;
    while (from >= 0 && !cache.has(from)) from--;
    let snapshot = cache.get(from) ?? EMPTY;
    for (let at = from + 1; at <= until; at++) {
      const event = lane.events.at(at);
      snapshot = applyEvent(snapshot, stream.page.writes[stream.nameOf(event)] ?? [], stream.body(event));
      if (at % CACHE_EVERY === 0) cache.set(at, snapshot);
    }
    cache.set(until, snapshot);
    return snapshot;
  };
  const before = build(position - 1);
  return { now: build(position), before };
}
