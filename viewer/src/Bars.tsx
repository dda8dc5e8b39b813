// The header of the page, and the bar that moves through the stream.

import { count, plural, seconds } from "./format";
import type { Counts, Ending } from "./lines";
import { SPEEDS } from "./play";
import { DONE, type Stream } from "./stream";
import type { Theme } from "./theme";

/** The logo: the levers of a railway signal box, one of them thrown. */
function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <rect x="2" y="17" width="20" height="4" rx="2" />
      <path d="M6 17V6M12 17V6M18 17L21.5 7" />
      <circle cx="6" cy="5" r="2" />
      <circle cx="12" cy="5" r="2" />
      <circle class="thrown" cx="21.6" cy="6" r="2" />
    </svg>
  );
}

const ICONS = {
  first: "M5 5v14M19 5L9 12l10 7z",
  before: "M15 5l-7 7 7 7",
  play: "M8 5l11 7-11 7z",
  pause: "M8 5v14M16 5v14",
  after: "M9 5l7 7-7 7",
  last: "M19 5v14M5 5l10 7-10 7z",
};

function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class={`icon i-${name}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function verdict({ error: errors = 0, deviation: deviations = 0, not_judged: unjudged = 0 }: Counts, ending: Ending | null): { look: string; text: string } {
  const counts = [errors && plural(errors, "error"), deviations && plural(deviations, "deviation"), unjudged && `${count(unjudged)} not judged`].filter(Boolean).join(", ");
  if (ending?.broken) return { look: "bad", text: ending.broken };
  if (ending && !ending.readable) return { look: "bad", text: "no events" };
  if (errors) return { look: "bad", text: `illegal: ${counts}` };
  if (!ending) return { look: "live", text: "streaming …" };
  if (counts) return { look: "warn", text: `legal, ${counts}` };
  return { look: "good", text: "legal" };
}

interface HeaderProps {
  stream?: Stream;
  theme: Theme;
  notice: string;
  title?: string;
  turn(): void;
  /** Without it, the page has no keys. */
  help?(): void;
  children?: preact.ComponentChildren;
}

export function Header({ stream, theme, notice, title, turn, help, children }: HeaderProps) {
  const { look, text } = verdict(stream?.counts ?? {}, stream?.ending ?? null);
  return (
    <header class="top">
      <h1>
        <Mark />
        <span class="brand">Interlock</span>
      </h1>
      <div class="sources">
        {title && <span class="source">{title}</span>}
        {stream && (
          <span class="source">
            <bdi title={stream.name}>{stream.name}</bdi>
            <span class={`pill ${look}`} role="status">
              {text}
            </span>
          </span>
        )}
      </div>
      <span class="notice" role="status" aria-live="polite">
        {notice}
      </span>
      <div class="tools">
        {children}
        <button type="button" onClick={turn} title={`Dark, light or system colours${help ? " (t)" : ""}`} aria-label={`Colours: ${theme}`}>
          {theme === "dark" ? "☾" : theme === "light" ? "☀" : "◐"}
        </button>
        {help && (
          <button type="button" onClick={help} title="Keys (?)" aria-label="Keys">
            ?
          </button>
        )}
      </div>
    </header>
  );
}

interface TransportProps {
  stream: Stream;
  cursor: number;
  playing: boolean;
  speed: number;
  timed: boolean;
  go(event: number): void;
  play(): void;
  choose(speed: number): void;
  measure(timed: boolean): void;
}

export function Transport({ stream, cursor, playing, speed, timed, go, play, choose, measure }: TransportProps) {
  const last = Math.max(0, stream.length - 1);
  const time = stream.time.at(cursor);
  const where = stream.data[cursor] === DONE ? `the end after ${plural(stream.events, "event")}` : `event ${count(cursor)} of ${count(stream.events)}`;
  return (
    <nav class="transport" aria-label="Playback">
      <div class="buttons">
        <button type="button" onClick={() => go(0)} aria-label="First event" title="First event (Home)">
          <Icon name="first" />
        </button>
        <button type="button" onClick={() => go(Math.max(0, cursor - 1))} aria-label="Previous event" title="Previous event (←)">
          <Icon name="before" />
        </button>
        <button type="button" class="play" onClick={play} aria-label={playing ? "Pause" : "Play"} title="Play or pause (space)">
          <Icon name={playing ? "pause" : "play"} />
        </button>
        <button type="button" onClick={() => go(Math.min(last, cursor + 1))} aria-label="Next event" title="Next event (→)">
          <Icon name="after" />
        </button>
        <button type="button" onClick={() => go(last)} aria-label="Last event" title="Last event (End)">
          <Icon name="last" />
        </button>
      </div>
      <input
        type="range"
        class="scrubber"
        min={0}
        max={last}
        value={cursor}
        aria-label="Event"
        aria-valuetext={where}
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <span class="where">
        {where}
        {!Number.isNaN(time) && <span class="quiet"> · {seconds(time)}</span>}
      </span>
      <select aria-label="Speed" value={speed} onChange={(event) => choose(Number(event.currentTarget.value))}>
        {SPEEDS.map((one, at) => (
          <option key={one.name} value={at} disabled={one.times > 0 && !stream.timed}>
            {one.name}
          </option>
        ))}
      </select>
      {stream.timed && (
        <button type="button" class="axis" aria-pressed={timed} onClick={() => measure(!timed)} title="Place the events of the lanes by time or by number">
          {timed ? "by time" : "by event"}
        </button>
      )}
    </nav>
  );
}

const KEYS: [string, string][] = [
  ["← →", "previous, next event"],
  ["↑ ↓", "previous, next row of the list"],
  ["[ ]", "previous, next event of the same item"],
  ["Home End", "first, last event"],
  ["n  N", "next, previous finding"],
  ["/", "search; Enter goes to the next match, Esc clears the search"],
  ["space", "play or pause"],
  ["+ −", "faster, slower"],
  ["e", "unfold or fold a run of events"],
  ["c", "copy the event as JSON"],
  ["u", "copy the request as curl"],
  ["t", "dark, light or system colours"],
  ["?", "this list"],
];

export function Help({ close }: { close(): void }) {
  return (
    <div class="veil" onClick={close}>
      <div role="dialog" aria-modal="true" aria-label="Keys" class="help" onClick={(event) => event.stopPropagation()}>
        <h2>Keys</h2>
        <dl>
          {KEYS.map(([key, what]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
        <button type="button" ref={(button) => button?.focus()} onClick={close}>
          Close
        </button>
      </div>
    </div>
  );
}
