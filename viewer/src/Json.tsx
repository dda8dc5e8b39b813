// A JSON value in colour. Long texts, long lists and deep nesting are shown in part, with the rest on demand, so that no value
// can block the page. Everything is inserted as text, never as markup.

import { useState } from "preact/hooks";
import type { Json } from "./item";

const TEXT = 2000;
const ENTRIES = 100;
const DEPTH = 12;

const isObject = (value: Json | undefined): value is { [name: string]: Json } => typeof value === "object" && value !== null && !Array.isArray(value);

function LongText({ text, added }: { text: string; added: number }) {
  const [limit, setLimit] = useState(TEXT);
  const end = added > 0 && text.length > limit;
  const part = text.length <= limit ? text : end ? text.slice(-limit) : text.slice(0, limit);
  const quoted = JSON.stringify(part).slice(1, -1);
  const fresh = added > 0 ? JSON.stringify(part.slice(-Math.min(added, part.length))).slice(1, -1) : "";
  const more = text.length - part.length;
  const button = more > 0 && (
    <button type="button" class="more" onClick={() => setLimit(limit * 8)}>
      … {more.toLocaleString("en-US")} more characters
    </button>
  );
  return (
    <span class="j-text">
      "{end && button}
      {quoted.slice(0, quoted.length - fresh.length)}
      {fresh && <mark>{fresh}</mark>}
      {!end && button}"
    </span>
  );
}

function Entries({ value, before, marks, depth }: { value: Json[] | { [name: string]: Json }; before: Json | undefined; marks: boolean; depth: number }) {
  const [limit, setLimit] = useState(ENTRIES);
  const [open, setOpen] = useState(depth < DEPTH);
  const list = Array.isArray(value);
  const names = Object.keys(value);
  const [first, last] = list ? ["[", "]"] : ["{", "}"];
  if (!names.length) return <>{first + last}</>;
  if (!open)
    return (
      <button type="button" class="more" onClick={() => setOpen(true)}>
        {first}…{last}
      </button>
    );
  const old = (name: string): Json | undefined => {
    if (Array.isArray(before)) return before[Number(name)];
    return isObject(before) ? before[name] : undefined;
  };
  return (
    <>
      {first}
      <ul>
        {names.slice(0, limit).map((name) => (
          <li key={name}>
            {!list && <span class="j-name">"{name}"</span>}
            {!list && ": "}
            <Value value={(value as Record<string, Json>)[name] as Json} before={old(name)} marks={marks} depth={depth + 1} />
          </li>
        ))}
        {names.length > limit && (
          <li>
            <button type="button" class="more" onClick={() => setLimit(limit * 4)}>
              … {(names.length - limit).toLocaleString("en-US")} more
            </button>
          </li>
        )}
      </ul>
      {last}
    </>
  );
}

function Value({ value, before, marks, depth }: { value: Json; before: Json | undefined; marks: boolean; depth: number }) {
  const changed = marks && value !== before;
  if (typeof value === "string") {
    const grown = changed && typeof before === "string" && before !== "" && value.startsWith(before);
    const text = <LongText text={value} added={grown ? value.length - before.length : 0} />;
    return changed && !grown ? <mark>{text}</mark> : text;
  }
  if (typeof value === "object" && value !== null) {
    const fresh = changed && before === undefined;
    const entries = <Entries value={value} before={before} marks={changed && !fresh} depth={depth} />;
    return fresh ? <span class="fresh">{entries}</span> : entries;
  }
  const plain = <span class="j-plain">{String(value)}</span>;
  return changed ? <mark>{plain}</mark> : plain;
}

/**
 * @param before - The value to compare with; differences are marked. Without it nothing is marked.
 */
export function JsonView({ value, before }: { value: Json; before?: Json | undefined }) {
  return (
    <div class="json" tabIndex={0} role="group" aria-label="JSON">
      <Value value={value} before={before} marks={before !== undefined} depth={0} />
    </div>
  );
}
