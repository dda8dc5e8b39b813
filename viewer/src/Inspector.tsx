// The details of the event under the cursor: its JSON, the item after it, its text, its origin in a recording, and all findings
// of the stream.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, count, plural, seconds, short } from "./format";
import { itemAt, type Json, type Snapshot } from "./item";
import { JsonView } from "./Json";
import type { Finding, Origin } from "./lines";
import type { Page, Stream } from "./stream";

export type Tab = "event" | "item" | "text" | "findings" | "origin";

const SEVERITY = { error: "error", deviation: "deviation", not_judged: "not judged" };

const plain = (text: string): string => text.replace(/[`*]/g, "");

export function FindingCard({ finding, page }: { finding: Finding; page: Page }) {
  const rule = page.rules[finding.rule];
  const deviation = page.deviations[finding.deviation];
  return (
    <article class={`finding ${finding.severity}`}>
      <header>
        <b>{finding.rule}</b>
        {rule && <span> {rule[0]}</span>}
        <span class="severity">{SEVERITY[finding.severity]}</span>
      </header>
      <p class="message">{finding.message}</p>
      {finding.expected.length > 0 && (
        <p class="expected">
          <span class="quiet">expected</span> {finding.expected.map(short).join(", ")}
        </p>
      )}
      {deviation ? (
        <p class="rule quiet">Not an error, because {plain(deviation[1])}.</p>
      ) : (
        rule && (
          <p class="rule quiet">
            {plain(rule[1])} {plain(rule[2])}
          </p>
        )
      )}
      <p class="rule quiet">
        {finding.line !== null && `line ${finding.line} of the file · `}
        <code>interlock check --explain {finding.deviation || finding.rule}</code>
      </p>
    </article>
  );
}

function Findings({ stream, cursor, go }: { stream: Stream; cursor: number; go(event: number): void }) {
  const [limit, setLimit] = useState(100);
  const all = stream.flagged.flatMap((event) => stream.findingsOf(event).map((finding) => ({ event, finding })));
  if (!all.length) return <p class="empty">{stream.ending ? "This stream has no findings." : "No findings so far."}</p>;
  const kinds = (["error", "deviation", "not_judged"] as const).map((severity) => [severity, all.filter((one) => one.finding.severity === severity)] as const);
  return (
    <div class="findings">
      {kinds
        .filter(([, some]) => some.length)
        .map(([severity, some]) => (
          <section key={severity}>
            <h3>{severity === "not_judged" ? `${count(some.length)} not judged` : plural(some.length, SEVERITY[severity])}</h3>
            <ul>
              {some.slice(0, limit).map(({ event, finding }, at) => (
                <li key={at}>
                  <a
                    href={`#event=${event}`}
                    class={`${severity}${event === cursor ? " current" : ""}`}
                    onClick={(click) => {
                      click.preventDefault();
                      go(Math.min(event, stream.length - 1));
                    }}
                  >
                    <span class="number">{event < stream.length ? event : "end"}</span> <b>{finding.rule}</b> {finding.message}
                  </a>
                </li>
              ))}
            </ul>
            {some.length > limit && (
              <button type="button" class="more" onClick={() => setLimit(limit * 4)}>
                … {count(some.length - limit)} more
              </button>
            )}
          </section>
        ))}
    </div>
  );
}

const TAIL = 20_000;

function Text({ snapshot }: { snapshot: Snapshot }) {
  const [limit, setLimit] = useState(TAIL);
  const end = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const box = end.current;
    if (box) box.scrollTop = box.scrollHeight;
  }, [snapshot]);
  if (!snapshot.text) return <p class="empty">No text at this event.</p>;
  const part = snapshot.text.slice(-limit);
  const added = Math.min(snapshot.added, part.length);
  const hidden = snapshot.text.length - part.length;
  return (
    <div class="text" ref={end} tabIndex={0} role="group" aria-label="The text so far">
      {hidden > 0 && (
        <button type="button" class="more" onClick={() => setLimit(limit * 8)}>
          … {count(hidden)} characters before this
        </button>
      )}
      <span>{part.slice(0, part.length - added)}</span>
      {added > 0 && <mark>{part.slice(-added)}</mark>}
    </div>
  );
}

function OriginView({ origin }: { origin: Origin | undefined }) {
  if (!origin) return <p class="empty">The engine wrote nothing for this event alone: it follows from the event before it.</p>;
  return (
    <div class="origin">
      {origin.tokens && (
        <section>
          <h3>{plural(origin.tokens.length, "token")}</h3>
          <p class="tokens">
            {origin.tokens.slice(0, 2000).map(([id, text], at) => (
              <span key={at} class={/^<\|.*\|>$/.test(text) ? "control" : ""} title={`token ${id}`}>
                {text.replace(/\n/g, "⏎\n") || "∅"}
              </span>
            ))}
          </p>
        </section>
      )}
      {origin.text !== undefined && (
        <section>
          <h3>{origin.tokens ? "text" : "engine output"}</h3>
          <p class="plain">{origin.text}</p>
        </section>
      )}
      {origin.framing && origin.framing.length > 0 && (
        <section>
          <h3>framing</h3>
          <ol class="framing">
            {origin.framing.slice(0, 2000).map(([source, trigger, dest], at) => (
              <li key={at}>
                <b>{source}</b> ─<i>{trigger}</i>→ <b>{dest}</b>
              </li>
            ))}
          </ol>
        </section>
      )}
      <section>
        <h3>{plural(origin.deltas.length, "delta")}</h3>
        <ul class="deltas">
          {origin.deltas.slice(0, 2000).map((delta, at) => (
            <li key={at}>
              <code>{delta}</code>
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

interface Props {
  stream: Stream;
  cursor: number;
  tab: Tab;
  choose(tab: Tab): void;
  go(event: number): void;
}

export function Inspector({ stream, cursor, tab, choose, go }: Props) {
  const lane = stream.laneOf(cursor);
  const position = lane.events.upTo(cursor) - 1;
  const number = stream.number.at(cursor);
  const data = stream.data[cursor] ?? "";
  const tabs: [Tab, string][] = [
    ["event", "Event"],
    ["item", lane.number ? "Item now" : `${lane.title[0]?.toUpperCase()}${lane.title.slice(1)} now`],
    ["text", "Text"],
    ["findings", `Findings ${stream.flagged.length ? `(${count([...stream.findings.values()].reduce((sum, some) => sum + some.length, 0))})` : ""}`],
  ];
  if (stream.origins.size) tabs.push(["origin", "Origin"]);
  const open = tabs.some(([one]) => one === tab) ? tab : "event";
  // The arrow keys move through the tabs while a tab has the focus. A click takes the focus away, so they then move through the stream.
  const turn = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = tabs[(tabs.findIndex(([one]) => one === open) + step + tabs.length) % tabs.length] as [Tab, string];
    choose(next[0]);
    document.getElementById(`tab-${next[0]}`)?.focus();
  };
  let content;
  if (open === "findings") content = <Findings stream={stream} cursor={cursor} go={go} />;
  else if (open === "origin") content = <OriginView origin={stream.origins.get(cursor)} />;
  else if (open === "event") {
    const body = stream.body(cursor);
    content = (
      <>
        <dl class="facts">
          <dt>event</dt>
          <dd>{count(cursor)}</dd>
          {stream.numbered && <dt>sequence_number</dt>}
          {stream.numbered && <dd>{Number.isNaN(number) ? "none" : number}</dd>}
          <dt>size</dt>
          <dd>{bytes(stream.size.at(cursor))}</dd>
          {!Number.isNaN(stream.time.at(cursor)) && <dt>arrived after</dt>}
          {!Number.isNaN(stream.time.at(cursor)) && <dd>{seconds(stream.time.at(cursor))}</dd>}
        </dl>
        {body === undefined ? <Raw data={data} /> : <JsonView key={cursor} value={body as Json} />}
      </>
    );
  } else {
    const { now, before } = itemAt(stream, lane, position);
    content = open === "text" ? <Text snapshot={now} /> : <JsonView key={lane.number} value={now.item} before={position > 0 ? before.item : undefined} />;
  }
  return (
    <section class="inspector" aria-label="The event under the cursor">
      <div class="tabs" role="tablist" aria-label="View" onKeyDown={turn}>
        {tabs.map(([one, name]) => (
          <button key={one} type="button" id={`tab-${one}`} role="tab" aria-selected={one === open} aria-controls="panel" tabIndex={one === open ? 0 : -1} onClick={(event) => (choose(one), event.detail > 0 && event.currentTarget.blur())}>
            {name}
          </button>
        ))}
      </div>
      <div id="panel" role="tabpanel" aria-labelledby={`tab-${open}`} class="panel" tabIndex={0}>
        {content}
      </div>
    </section>
  );
}

/** Data that is not JSON. */
function Raw({ data }: { data: string }) {
  return <JsonView value={data} />;
}
