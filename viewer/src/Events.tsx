// The list of events. The document contains only the visible rows.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, count, hue, plural, short } from "./format";
import { type Filter, isFiltered, NO_FILTER, type Rows } from "./rows";
import type { Stream } from "./stream";

const ROW = 26;
/** The highest element that browsers support; a longer list is scrolled in proportion. */
const HIGHEST = 8_000_000;

interface Props {
  stream: Stream;
  rows: Rows;
  cursor: number;
  filter: Filter;
  version: number;
  go(event: number): void;
  unfold(first: number): void;
  narrow(filter: Filter): void;
}

export function Events({ stream, rows, cursor, filter, version, go, unfold, narrow }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [, setGrowth] = useState(0);
  useEffect(() => {
    if (rows.done) return;
    const timer = setTimeout(() => {
      rows.grow();
      setGrowth((times) => times + 1);
    });
    return () => clearTimeout(timer);
  });
  const real = rows.length * ROW;
  const height = Math.min(real, HIGHEST);
  const factor = height > view.height ? (real - view.height) / (height - view.height) : 1;
  const top = view.top * factor;
  const from = Math.max(0, Math.floor(top / ROW) - 4);
  const to = Math.min(rows.length, Math.ceil((top + view.height) / ROW) + 4);
  const current = rows.has(cursor) ? rows.rowOf(cursor) : -1;

  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const measure = (): void => setView((before) => ({ ...before, height: box.clientHeight }));
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box || current < 0) return;
    const at = current * ROW;
    if (at < top || at + ROW > top + view.height) {
      box.scrollTop = Math.max(0, at - view.height / 2) / factor;
      setView({ top: box.scrollTop, height: view.height });
    }
  }, [current, rows]);

  const list = [];
  for (let row = from; row < to; row++) {
    const first = rows.starts.at(row);
    const after = rows.ends.at(row);
    const lane = stream.laneOf(first);
    const times = after - first;
    const here = row === current;
    let size = 0;
    for (let event = first; event < after && event < first + 4096; event++) size += stream.size.at(event);
    const worst = stream.findingsOf(first).map((finding) => finding.severity);
    const look = worst.includes("error") ? " bad" : worst.length ? " warn" : "";
    list.push(
      <div
        key={first}
        id={`event-${first}`}
        role="option"
        aria-selected={here}
        class={`row${here ? " current" : ""}${look}`}
        style={{ top: `${row * ROW - top + view.top}px`, "--hue": hue(lane.title) }}
        onClick={() => go(first)}
      >
        <span class="number">{here && times > 1 ? cursor : first}</span>
        <i class="dot" />
        <span class="name">{short(stream.nameOf(first))}</span>
        {times > 1 && (
          <span class="fold" title="Show each of them (e)" onClick={(event) => (event.stopPropagation(), unfold(first))}>
            ×{count(times)}
          </span>
        )}
        {worst.length > 0 && <span class="flag">{stream.findingsOf(first).map((finding) => finding.rule).join(" ")}</span>}
        <span class="size">{bytes(size)}{times > 4096 ? "+" : ""}</span>
      </div>,
    );
  }
  const kinds = stream.kinds.map((name, kind) => [kind, short(name)] as const);
  return (
    <section class="events" aria-label="Events" data-version={version}>
      <div class="filter">
        <input
          id="search"
          type="search"
          placeholder="Search  /"
          aria-label="Search in names and data"
          value={filter.text}
          onInput={(event) => narrow({ ...filter, text: event.currentTarget.value })}
        />
        <select aria-label="Item" value={filter.lane} onChange={(event) => narrow({ ...filter, lane: Number(event.currentTarget.value) })}>
          <option value={-1}>all items</option>
          {stream.lanes.slice(0, 500).map((lane) => (
            <option key={lane.number} value={lane.number}>
              {lane.number ? `${lane.index ?? ""} ${lane.title}` : lane.title}
            </option>
          ))}
        </select>
        <select aria-label="Kind of event" value={filter.kind} onChange={(event) => narrow({ ...filter, kind: Number(event.currentTarget.value) })}>
          <option value={-1}>all events</option>
          {kinds.slice(0, 500).map(([kind, name]) => (
            <option key={kind} value={kind}>
              {name}
            </option>
          ))}
        </select>
      </div>
      {isFiltered(filter) && (
        <p class="summary" role="status">
          {rows.done ? "" : "searching … "}
          {rows.length ? `${count(rows.length)} row${rows.length === 1 ? "" : "s"}` : rows.done ? "Nothing matches." : ""}
          <button type="button" onClick={() => narrow(NO_FILTER)}>
            Show all
          </button>
        </p>
      )}
      <div
        class="scroll"
        ref={scroller}
        role="listbox"
        tabIndex={0}
        aria-label={plural(stream.events, "event")}
        aria-activedescendant={current >= from && current < to ? `event-${rows.starts.at(current)}` : undefined}
        onScroll={(event) => setView({ top: event.currentTarget.scrollTop, height: view.height })}
      >
        <div class="inside" role="presentation" style={{ height: `${height}px` }}>
          {list}
        </div>
      </div>
    </section>
  );
}
