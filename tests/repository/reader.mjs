// A reader of the specification that knows nothing of Interlock but docs/library/porting.md: node reader.mjs FOLDER.
// It walks every table, judges the order of the items in every stream by the tables alone, and writes what disagrees with the vectors.

import { readFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
const { tables } = read("tables.json");
const { observed } = read("rules.json");
const faults = [];
const counts = { tables: 0, walks: 0, streams: 0, items: 0 };

// A table as rows: state -> trigger -> [next state, events]. An edge of a region stands for one in each of its states.
function compile(table) {
  const rows = {};
  for (const { source, dest, labels } of table.edges)
    for (const state of table.regions[source] ?? [source])
      for (const { triggers, events } of labels)
        for (const trigger of triggers) (rows[state] ??= {})[trigger] = [dest === source ? state : dest, events];
  return rows;
}

for (const [name, walks] of Object.entries(read("walks.json"))) {
  counts.tables++;
  const rows = compile(tables[name]);
  const start = tables[name].nodes.find((node) => node.role === "initial").name;
  for (const walk of walks) {
    counts.walks++;
    let state = start;
    for (const [trigger, next, events] of walk) {
      const [entered, emitted] = rows[state]?.[trigger] ?? [];
      if (entered !== next || JSON.stringify(emitted) !== JSON.stringify(events)) faults.push(`${name}: ${state} on ${trigger}`);
      state = next;
    }
  }
}

// A stream shows events, but no triggers: the possible positions are states, or events of an edge that are still due.
// The state at the end is the status of the item, if the status names one.
function accepts({ kind, events, status }) {
  const table = tables[kind];
  const edges = Object.entries(compile(table)).flatMap(([source, row]) => Object.values(row).map(([dest, emitted]) => [source, dest, emitted]));
  for (const edge of observed[kind] ?? []) edges.push([edge.source, edge.dest, edge.events]);
  const final = new Set(table.nodes.filter((node) => node.role === "final").map((node) => node.name));
  for (const edge of observed[kind] ?? []) if (edge.events.at(-1) === "response.output_item.done") final.add(edge.dest);
  let positions = new Map();
  const add = (into, state, due) => {
    const key = `${state}|${due}`;
    if (into.has(key)) return;
    into.set(key, [state, due]);
    if (!due.length) for (const [source, dest, emitted] of edges) if (source === state) add(into, dest, emitted);
    if (due[0]?.endsWith(".delta")) add(into, state, due.slice(1)); // no delta has to be sent
  };
  add(positions, table.nodes.find((node) => node.role === "initial").name, []);
  for (const event of events) {
    const next = new Map();
    for (const [state, due] of positions.values()) if (due[0] === event) add(next, state, due.slice(1));
    positions = next;
  }
  return [...positions.values()].some(([state, due]) => !due.length && final.has(state) && (state === status || !final.has(status)));
}

function itemsOf(text) {
  const items = new Map();
  for (const frame of text.split(/\r?\n\r?\n/)) {
    const data = frame.split(/\r?\n/).find((line) => line.startsWith("data: {"))?.slice(6);
    if (!data) continue;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      continue;
    }
    const id = event.item?.id ?? event.item_id;
    if (event.type === "response.output_item.added") items.set(id, { kind: event.item?.type, events: [] });
    const item = items.get(id);
    item?.events.push(event.type);
    if (event.type === "response.output_item.done" && item) item.status = event.item.status;
  }
  return [...items.values()];
}

for (const [name, vector] of Object.entries(read("streams.json"))) {
  counts.streams++;
  const items = itemsOf(readFileSync(join(folder, "streams", name), "utf8")).filter(({ kind }) => kind in tables);
  counts.items += items.length;
  const ordered = items.every(accepts);
  const clean = !vector.findings.length;
  const disordered = vector.findings.some(({ rule, severity }) => rule === "R10" && severity === "error");
  if (clean && !ordered) faults.push(`${name}: legal, but an item is refused`);
  if (disordered && ordered) faults.push(`${name}: breaks R10, but its items are accepted`);
}

console.log(JSON.stringify({ ...counts, faults }));
