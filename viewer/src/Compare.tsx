// Two streams side by side: rows of corresponding events, and the two events of the selected row.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Header, Help } from "./Bars";
import { count, hue, plural, short } from "./format";
import type { Json } from "./item";
import { JsonView } from "./Json";
import { Lanes } from "./Lanes";
import type { Pair } from "./lines";
import type { Page, Stream } from "./stream";
import { useTheme } from "./theme";

const ROW = 28;

const MARKS: Record<Pair["mark"], [string, string]> = {
  same: ["=", "the same"],
  differs: ["≠", "differs"],
  left: ["−", "only in the left stream"],
  right: ["+", "only in the right stream"],
};

function Cell({ stream, range }: { stream: Stream; range: [number, number] | null }) {
  if (!range) return <span class="cell none" />;
  const [first, after] = range;
  const lane = stream.laneOf(first);
  const worst = stream.findingsOf(first);
  return (
    <span class="cell" style={{ "--hue": hue(lane.title) }}>
      <span class="number">{first}</span>
      <i class="dot" />
      <span class="name">{short(stream.nameOf(first))}</span>
      {after - first > 1 && <span class="fold">×{count(after - first)}</span>}
      {worst.length > 0 && <span class="flag">{worst.map((one) => one.rule).join(" ")}</span>}
    </span>
  );
}

/** Return the event of a run; for several deltas, the first with the texts of all. */
function content(stream: Stream, range: [number, number] | null): Json | undefined {
  if (!range) return undefined;
  const body = stream.body(range[0]) as Json | undefined;
  if (body === undefined) return stream.data[range[0]] ?? "";
  if (range[1] - range[0] < 2 || typeof body !== "object" || body === null || Array.isArray(body)) return body;
  let text = "";
  for (let event = range[0]; event < range[1]; event++) {
    const delta = (stream.body(event) as { delta?: unknown } | undefined)?.delta;
    if (typeof delta === "string") text += delta;
  }
  return { ...body, delta: text };
}

/** Replace fields that differ from run to run by those of the reference, so that they are not marked as differences. */
function steady(value: Json | undefined, reference: Json | undefined, volatile: Set<string>): Json | undefined {
  if (Array.isArray(value)) return value.map((one, at) => steady(one, Array.isArray(reference) ? reference[at] : undefined, volatile) as Json);
  if (typeof value !== "object" || value === null) return value;
  const other = typeof reference === "object" && reference !== null && !Array.isArray(reference) ? reference : {};
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, volatile.has(name) && name in other ? (other[name] as Json) : (steady(inner, other[name], volatile) as Json)]));
}

export function Compare({ page, version }: { page: Page; version: number }) {
  const [left, right] = page.streams as [Stream, Stream];
  const { theme, dark, turn } = useTheme();
  const [at, setAt] = useState(0);
  const [onlyDifferences, setOnlyDifferences] = useState(false);
  const [help, setHelp] = useState(false);
  const [view, setView] = useState({ top: 0, height: 400 });
  const scroller = useRef<HTMLDivElement>(null);
  const { pairs } = page;
  const rows = onlyDifferences ? pairs.rows.filter((row) => row.mark !== "same") : pairs.rows;
  const differences = pairs.rows.filter((row) => row.mark !== "same").length;
  const row = rows[Math.min(at, rows.length - 1)];
  const go = (to: number): void => setAt(Math.max(0, Math.min(to, rows.length - 1)));
  const next = (by: number): void => {
    let to = at + by;
    while (to >= 0 && to < rows.length && rows[to]?.mark === "same") to += by;
    if (to >= 0 && to < rows.length) setAt(to);
  };
  const toEvent = (side: "left" | "right", event: number): void => {
    const index = rows.findIndex((one) => one[side] && one[side][0] <= event && event < one[side][1]);
    if (index >= 0) go(index);
  };
  const press = useRef((_: KeyboardEvent): void => {});
  press.current = (event: KeyboardEvent): void => {
    const keys: Record<string, () => void> = {
      ArrowDown: () => go(at + 1),
      ArrowRight: () => go(at + 1),
      ArrowUp: () => go(at - 1),
      ArrowLeft: () => go(at - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      n: () => next(1),
      N: () => next(-1),
      t: turn,
      "?": () => setHelp(!help),
      Escape: () => setHelp(false),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent): void => press.current(event);
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const measure = (): void => setView({ top: box.scrollTop, height: box.clientHeight });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const box = scroller.current;
    if (box && (at * ROW < box.scrollTop || (at + 1) * ROW > box.scrollTop + box.clientHeight)) box.scrollTop = at * ROW - box.clientHeight / 2;
  }, [at]);

  const volatile = new Set(pairs.volatile);
  const texts = [content(left, row?.left ?? null), content(right, row?.right ?? null)] as const;
  const from = Math.max(0, Math.floor(view.top / ROW) - 4);
  const visible = rows.slice(from, Math.ceil((view.top + view.height) / ROW) + 4);
  return (
    <>
      <Header streams={[left, right]} theme={theme} redacted={page.redacted} notice="" turn={turn} help={() => setHelp(true)}>
        <button type="button" aria-pressed={onlyDifferences} onClick={() => (setOnlyDifferences(!onlyDifferences), setAt(0))}>
          {onlyDifferences ? "all rows" : "only differences"}
        </button>
        <button type="button" onClick={() => next(1)} title="Next difference (n)">
          next difference
        </button>
      </Header>
      <div class="both">
        {[left, right].map((stream, side) => (
          <div key={side}>
            {stream.length > 0 && (
              <Lanes
                stream={stream}
                cursor={(side ? row?.right : row?.left)?.[0] ?? 0}
                timed={false}
                version={version}
                dark={dark}
                label={`Lanes of ${stream.name}`}
                go={(event) => toEvent(side ? "right" : "left", event)}
              />
            )}
          </div>
        ))}
      </div>
      <main class="compare">
        <section class="rows" aria-label="Events side by side">
          <p class="summary" role="status">
            {pairs.rows.length ? `${plural(differences, "difference")} in ${plural(pairs.rows.length, "row")}` : "Reading both streams …"}
            <span class="quiet">ids, times, sequence numbers and the boundaries of deltas are not compared</span>
          </p>
          <div class="scroll" ref={scroller} tabIndex={0} role="listbox" aria-label="Rows" onScroll={(event) => setView({ top: event.currentTarget.scrollTop, height: view.height })}>
            <div class="inside" role="presentation" style={{ height: `${rows.length * ROW}px` }}>
              {visible.map((one, offset) => (
                <div
                  key={from + offset}
                  role="option"
                  aria-selected={from + offset === at}
                  class={`pair ${one.mark}${from + offset === at ? " current" : ""}`}
                  style={{ top: `${(from + offset) * ROW}px` }}
                  onClick={() => go(from + offset)}
                >
                  <Cell stream={left} range={one.left} />
                  <span class="mark" title={MARKS[one.mark][1]}>
                    {MARKS[one.mark][0]}
                  </span>
                  <Cell stream={right} range={one.right} />
                </div>
              ))}
            </div>
          </div>
        </section>
        {row && row.paths.length > 0 && (
          <p class="paths">
            <span class="quiet">differs in</span> {row.paths.map((path) => path.replace(/^\./, "")).join(", ")}
          </p>
        )}
        <div class="texts">
          {texts.map((text, side) => (
            <section key={side} aria-label={`The event of ${(side ? right : left).name}`}>
              <h2>{(side ? right : left).name}</h2>
              {text === undefined ? (
                <p class="empty">This stream has no such event.</p>
              ) : (
                <JsonView key={at} value={text} before={texts[1 - side] === undefined ? undefined : steady(texts[1 - side], text, volatile)} />
              )}
            </section>
          ))}
        </div>
      </main>
      {help && <Help of="compare" close={() => setHelp(false)} />}
    </>
  );
}
