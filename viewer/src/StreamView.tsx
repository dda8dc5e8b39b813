// The page of one stream: its lanes, its events, the machine, the details of an event, and the keys.

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Header, Help, Transport } from "./Bars";
import { copy, curl } from "./copy";
import { Events } from "./Events";
import { plural } from "./format";
import { FindingCard, Inspector, type Tab } from "./Inspector";
import { Lanes } from "./Lanes";
import { StepSummary, firedKeys, key, Machine } from "./Machine";
import { SPEEDS, usePlaying } from "./play";
import { type Filter, NO_FILTER, Rows } from "./rows";
import type { Page, Stream } from "./stream";
import { useTheme } from "./theme";

/** Return the edges that a machine fired up to an event, and the states that it was in: the machine of a lane, or of all lanes. */
function pathOf(stream: Stream, cursor: number): { path: Set<string>; visited: Set<string> } {
  const path = new Set<string>();
  const visited = new Set<string>();
  const lane = stream.laneOf(cursor);
  const { machine } = stream;
  const shared = lane.number === 0 || stream.stepOf(cursor)?.machine === machine;
  for (const event of shared ? stream.lanes.flatMap((one) => one.changes) : lane.changes) {
    const step = stream.stepOf(event);
    if (event > cursor || (shared && step?.machine !== machine)) continue;
    if (step?.fired.length === 1 || event === cursor) for (const one of firedKeys(step)) path.add(one);
    for (const [source, , , , silent] of step?.fired.length === 1 ? step.fired : []) {
      visited.add(source);
      for (const [from] of silent) visited.add(from);
    }
  }
  return { path, visited };
}

/** Return the event that the address names, or -1. */
export function linkedEvent(): number {
  const match = /[#&]event=(\d{1,9})/.exec(location.hash);
  return match ? Number(match[1]) : -1;
}

export function StreamView({ page, stream, version }: { page: Page; stream: Stream; version: number }) {
  const [cursor, setCursor] = useState(0);
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const [tab, setTab] = useState<Tab>("event");
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(-1);
  const [timed, setTimed] = useState<boolean | null>(null);
  const [help, setHelp] = useState(false);
  const [notice, setNotice] = useState("");
  const [chosen, setPane] = useState("");
  const [whole, setWhole] = useState(false);
  const [framing, setFraming] = useState(false);
  const { theme, dark, turn } = useTheme();
  const target = useRef(linkedEvent());
  const rows = useMemo(() => new Rows(stream, filter, open), [stream, filter, open]);
  if (!rows.done) rows.grow();
  // A phone shows one pane: the one that the reader chose, or else the machine, which has the findings, if the stream is illegal.
  const pane = chosen || (stream.counts.error ? "machine" : "events");
  const byTime = timed ?? stream.timed;
  const pace = speed >= 0 ? speed : stream.timed ? 1 : 4;

  // Keys can arrive faster than the page is drawn, so each one moves the cursor from where the one before put it.
  const at = useRef(0);
  const go = useCallback(
    (event: number): void => {
      at.current = Math.max(0, Math.min(event, stream.length - 1));
      setCursor(at.current);
    },
    [stream],
  );
  usePlaying(stream, cursor, playing, SPEEDS[pace] ?? SPEEDS[4]!, go, () => setPlaying(false));

  // A link to an event is followed when the event has arrived. Without a link the page opens at the first finding, unless the
  // reader has moved the cursor. The address then follows the cursor, with a delay.
  const opening = useRef(target.current < 0);
  useEffect(() => {
    if (target.current >= 0 && target.current < stream.length) {
      go(target.current);
      target.current = -1;
    }
    if (opening.current && stream.flagged.length) {
      opening.current = false;
      if (at.current === 0) go(Math.min(...stream.flagged));
    }
  }, [version]);
  useEffect(() => {
    const follow = (): void => {
      if (linkedEvent() >= 0) go(linkedEvent());
    };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => {
    if (target.current >= 0) return;
    const timer = setTimeout(() => cursor !== Math.max(0, linkedEvent()) && history.replaceState(null, "", `#event=${cursor}`), 250);
    return () => clearTimeout(timer);
  }, [cursor]);
  useEffect(() => {
    if (!notice) return;
    const timer = setTimeout(() => setNotice(""), 2500);
    return () => clearTimeout(timer);
  }, [notice]);

  const play = (): void => {
    if (!playing && at.current >= stream.length - 1 && stream.ending) go(0);
    setPlaying(!playing);
  };
  const unfold = (first: number): void => {
    const next = new Set(open);
    if (!next.delete(first)) next.add(first);
    setOpen(next);
  };
  const toRow = (by: number): void => {
    const row = rows.rowOf(at.current) + by;
    const inside = rows.has(at.current);
    const next = !inside && by > 0 && rows.starts.at(0) > at.current ? 0 : row;
    if (next >= 0 && next < rows.length) go(rows.starts.at(next));
  };
  const toFinding = (by: number): void => {
    const { flagged } = stream;
    const near = by > 0 ? flagged.find((event) => event > at.current) : flagged.findLast((event) => event < at.current);
    const next = near ?? (by > 0 ? flagged[0] : flagged[flagged.length - 1]);
    if (next === undefined) setNotice(stream.ending ? "This stream has no findings." : "No findings so far.");
    else {
      go(next);
      const [first] = stream.findingsOf(next);
      if (first) setNotice(`${first.rule}: ${first.message}`);
    }
  };
  const inLane = (by: number): void => {
    const lane = stream.laneOf(at.current);
    const position = lane.events.upTo(at.current) - 1 + by;
    if (position >= 0 && position < lane.events.length) go(lane.events.at(position));
  };
  const copyText = (text: string | null, what: string): void => {
    if (text === null) setNotice("The request of this stream is unknown.");
    else void copy(text).then((done) => setNotice(done ? `Copied ${what}.` : "The browser does not allow copying."));
  };
  const keys: Record<string, () => void> = {
    ArrowLeft: () => go(at.current - 1),
    ArrowRight: () => go(at.current + 1),
    ArrowUp: () => toRow(-1),
    ArrowDown: () => toRow(1),
    Home: () => go(0),
    End: () => go(stream.length - 1),
    "[": () => inLane(-1),
    "]": () => inLane(1),
    n: () => toFinding(1),
    N: () => toFinding(-1),
    "/": () => (setPane("events"), document.getElementById("search")?.focus()),
    " ": play,
    "+": () => setSpeed(Math.min(SPEEDS.length - 1, pace + 1)),
    "-": () => setSpeed(Math.max(stream.timed ? 0 : 3, pace - 1)),
    e: () => {
      const row = rows.rowOf(at.current);
      let first = rows.starts.at(row);
      const kind = stream.kind.at(first);
      const lane = stream.lane.at(first);
      while (!open.has(first) && first > 0 && stream.kind.at(first - 1) === kind && stream.lane.at(first - 1) === lane && rows.ends.at(row) - rows.starts.at(row) === 1) first--;
      unfold(first);
    },
    c: () => copyText(stream.data[at.current] ?? "", "the event"),
    u: () => copyText(curl(stream), "the request"),
    t: turn,
    "?": () => setHelp(!help),
  };
  const press = useRef((_: KeyboardEvent): void => {});
  press.current = (event: KeyboardEvent): void => {
      const target = event.target as HTMLElement;
      if (event.key === "Escape") {
        setHelp(false);
        if (target.id === "search") {
          setFilter(NO_FILTER);
          target.blur();
        }
        return;
      }
      if (target.id === "search" && event.key === "Enter") {
        event.preventDefault();
        toRow(event.shiftKey ? -1 : rows.has(at.current) || rows.starts.at(0) <= at.current ? 1 : 0);
        return;
      }
      const typing = target.matches("input:not([type=range]), select, textarea");
      if (typing || help || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === " " && target.matches("button, a")) return;
      const act = keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
  };
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent): void => press.current(event);
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);

  // Scroll the current state, or the edge that fires, into view.
  const centre = useRef<HTMLDivElement>(null);
  const stepNumber = stream.step.at(cursor);
  useLayoutEffect(() => {
    const box = centre.current;
    const lit = box?.querySelector(".state.lit") ?? box?.querySelector(".over.fired, .state.possible");
    if (!box || !lit || whole) return;
    const frame = box.getBoundingClientRect();
    const place = lit.getBoundingClientRect();
    if (place.top < frame.top || place.bottom > frame.bottom) box.scrollTop += place.top + place.height / 2 - (frame.top + frame.height * 0.5);
    if (place.left < frame.left || place.right > frame.right) box.scrollLeft += place.left + place.width / 2 - (frame.left + frame.width * 0.5);
  }, [stepNumber, stream.lane.at(cursor), whole, pane, framing]);

  const header = (
    <Header stream={stream} theme={theme} notice={notice} turn={turn} help={() => setHelp(true)}>
      <button type="button" onClick={keys["c"]} title="Copy the event as JSON (c)">
        JSON
      </button>
      {stream.request && (
        <button type="button" onClick={keys["u"]} title="Copy the request as curl (u)">
          curl
        </button>
      )}
      {stream.flagged.length > 0 && (
        <button type="button" onClick={keys["n"]} title="Next finding (n)">
          next finding
        </button>
      )}
    </Header>
  );
  if (!stream.length)
    return (
      <>
        {header}
        <main class="waiting">
          <p role="status">{stream.ending ? "This stream has no events." : "Waiting for the first event …"}</p>
          {[...stream.findings.values()].flat().map((finding, at) => (
            <FindingCard key={at} finding={finding} page={page} />
          ))}
        </main>
        {help && <Help close={() => setHelp(false)} />}
      </>
    );

  const lane = stream.laneOf(cursor);
  const framingStep = framing ? stream.framingAt(cursor) : null;
  const step = framingStep?.step ?? stream.stepOf(cursor);
  const picture = page.machines[step?.machine || (page.machines[lane.title] ? lane.title : stream.machine)];
  const lanePath = framingStep ? null : pathOf(stream, cursor);
  const path = lanePath?.path ?? new Set(framingStep?.path.map(([source, trigger, dest]) => key(source, trigger, dest)));
  const visited = lanePath?.visited ?? new Set(framingStep?.path.map(([source]) => source));
  const findings = [...stream.findingsOf(cursor), ...(cursor === stream.length - 1 ? stream.findingsOf(stream.length) : [])];
  return (
    <>
      {header}
      <Transport stream={stream} cursor={cursor} playing={playing} speed={pace} timed={byTime} go={go} play={play} choose={setSpeed} measure={setTimed} />
      <Lanes stream={stream} cursor={cursor} timed={byTime} version={version} dark={dark} go={go} onSelect={(lane) => (setFraming(lane.number < 0), setPane(lane.number < 0 ? "machine" : pane))} />
      <nav class="panes" aria-label="View">
        {["events", "machine", "inspector"].map((one) => (
          <button key={one} type="button" aria-pressed={pane === one} onClick={() => setPane(one)}>
            {one === "inspector" ? "details" : one}
          </button>
        ))}
      </nav>
      <main class="main" data-pane={pane}>
        <Events stream={stream} rows={rows} cursor={cursor} filter={filter} version={version} go={go} unfold={unfold} narrow={setFilter} />
        <section class={`centre${whole ? " whole" : ""}`} aria-label="The machine">
          {findings.length > 0 && (
            <div class="cards" role="group" aria-label={plural(findings.length, "finding")}>
              {findings.slice(0, 5).map((finding, at) => (
                <FindingCard key={at} finding={finding} page={page} />
              ))}
            </div>
          )}
          <div class="caption">
            <h2>
              {framingStep ? "framing of harmony" : (picture?.name ?? lane.title)}
              {!framingStep && lane.name && step?.machine !== stream.machine && <span class="quiet"> {lane.name}</span>}
              {step?.state && <span class={`at${step.states.length > 1 ? " possible" : ""}`}>{step.state}</span>}
            </h2>
            <div class="views">
              {stream.framing && (
                <button type="button" title={framing ? "Show the machine of the item" : "Show the framing of the tokens"} onClick={() => setFraming(!framing)}>
                  {framing ? "item" : "framing"}
                </button>
              )}
              {picture && (
                <button type="button" onClick={() => setWhole(!whole)}>
                  {whole ? "full width" : "whole picture"}
                </button>
              )}
            </div>
            {framingStep ? (
              <p class="step quiet">
                {framingStep.step.fired.length ? `${plural(framingStep.step.fired.length, "step")} of the framing before this event: tokens and ends of turns` : "No token belongs to this event alone"}
              </p>
            ) : (
              <StepSummary step={step} name={stream.nameOf(cursor)} />
            )}
          </div>
          {picture ? (
            <div class="picture" style={{ "--width": `${picture.width}px` }} ref={centre} tabIndex={0} role="group" aria-label={`Picture of ${picture.name}`}>
              <Machine picture={picture} step={step} path={path} visited={visited} several={framingStep !== null} prefix="m" />
            </div>
          ) : (
            <p class="empty">Interlock has no machine for this kind of item, and checks only the rules for all items.</p>
          )}
        </section>
        <Inspector stream={stream} cursor={cursor} tab={tab} choose={setTab} go={go} />
      </main>
      {help && <Help close={() => setHelp(false)} />}
    </>
  );
}
