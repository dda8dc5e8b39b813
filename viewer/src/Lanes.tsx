// Lanes: for each item a bar from its first event to its last, with the runs of its tool, its events, gaps and findings.
// Only visible lanes are drawn, with at most one mark per pixel.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { hue } from "./format";
import type { Lane, Stream } from "./stream";

export const LANE = 26;
/** The base line of the labels in a lane. */
const LABEL = 13;

/** The positions of the events on the axis, from 0 to 1. */
export class Axis {
  private readonly first: number;
  private readonly length: number;

  constructor(
    readonly stream: Stream,
    readonly timed: boolean,
  ) {
    const last = stream.length - 1;
    this.first = timed ? stream.time.at(0) : 0;
    this.length = Math.max(1, timed ? stream.time.at(last) - this.first : last);
  }

  at(event: number): number {
    const { stream } = this;
    const clamped = Math.min(Math.max(event, 0), Math.max(0, stream.length - 1));
    return ((this.timed ? stream.time.at(clamped) : clamped) - this.first) / this.length;
  }

  /** The last event at or before a place in time, or else the nearest event. */
  event(place: number): number {
    const value = this.first + place * this.length;
    if (!this.timed) return Math.round(Math.min(Math.max(value, 0), this.stream.length - 1));
    return Math.max(0, this.stream.time.upTo(value) - 1);
  }
}

/** The times at which the tool of an item ran: the first event of each, the one after its last, and the state. */
export function runs(stream: Stream, lane: Lane): [number, number, string][] {
  if (lane.number < 0) return framing(stream, lane);
  const states = stream.page.machines[lane.kind]?.states.filter((state) => state.tool === "running").map((state) => state.name) ?? [];
  const spans: [number, number, string][] = [];
  if (!states.length) return spans;
  for (let at = 0; at < lane.changes.length; at++) {
    const event = lane.changes[at] as number;
    const now = stream.stepOf(event)?.states ?? [];
    const running = now.length === 1 && states.includes(now[0] as string) ? (now[0] as string) : "";
    const last = spans[spans.length - 1];
    const open = last && last[1] === -1;
    if (open && running !== last[2]) last[1] = event;
    if (running && (!open || running !== last?.[2])) spans.push([event, -1, running]);
  }
  const last = spans[spans.length - 1];
  if (last && last[1] === -1) last[1] = lane.events.at(lane.events.length - 1);
  return spans;
}

/** The spans in which the framing was inside the content of a message. */
function framing(stream: Stream, lane: Lane): [number, number, string][] {
  const spans: [number, number, string][] = [];
  for (let at = 0; at < lane.events.length; at++) {
    const event = lane.events.at(at);
    const steps = stream.origins.get(event)?.framing ?? [];
    const inside = steps[steps.length - 1]?.[2] === "content";
    const last = spans[spans.length - 1];
    if (last && last[1] === -1 && !inside) last[1] = event;
    if (inside && (!last || last[1] !== -1)) spans.push([event, -1, "content"]);
  }
  const last = spans[spans.length - 1];
  if (last && last[1] === -1) last[1] = stream.length - 1;
  return spans;
}

function draw(canvas: HTMLCanvasElement, stream: Stream, axis: Axis, lanes: Lane[], cursor: number): void {
  const width = canvas.clientWidth;
  const height = lanes.length * LANE;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context || !width) return;
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const dark = style.getPropertyValue("--dark").trim() === "1";
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const inside = width - 16;
  const x = (event: number): number => 8 + axis.at(event) * inside;
  lanes.forEach((lane, row) => {
    const top = row * LANE;
    const of = hue(lane.title);
    const tint = (alpha: number, light = dark ? 66 : 42): string => `hsl(${of} ${lane.number ? 62 : 12}% ${light}% / ${alpha})`;
    if (row) {
      context.fillStyle = colour("--hair");
      context.fillRect(0, top, width, 1);
    }
    if (!lane.events.length) return;
    const first = x(lane.events.at(0));
    const last = x(lane.events.at(lane.events.length - 1));
    context.fillStyle = tint(dark ? 0.24 : 0.15);
    context.strokeStyle = tint(0.55);
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(first - 2.5, top + 3.5, Math.max(5, last - first + 5), LANE - 7, 4);
    context.fill();
    context.stroke();
    for (const [from, to, state] of runs(stream, lane)) {
      const start = x(from);
      const end = x(to);
      context.fillStyle = tint(dark ? 0.5 : 0.32);
      context.fillRect(start, top + 4, Math.max(2, end - start), LANE - 8);
      context.font = "10px system-ui, sans-serif";
      if (context.measureText(state).width < end - start - 8) {
        context.fillStyle = colour("--ink");
        context.fillText(state, start + 4, top + LABEL);
      }
    }
    // A tick for each pixel that has events, higher with more events, but never as high as the labels. A binary search finds the events
    // of a pixel, so the time depends on the pixels, not on the events.
    context.fillStyle = tint(0.95);
    let at = 0;
    while (at < lane.events.length) {
      const pixel = Math.floor(x(lane.events.at(at)));
      const until = axis.event((pixel + 1 - 8) / inside);
      const next = Math.max(at + 1, lane.events.upTo(until));
      const tall = Math.min(LANE - 6 - LABEL, 3 + Math.log2(next - at + 1));
      context.fillRect(pixel, top + LANE - 4 - tall, 1, tall);
      at = next;
    }
  });
  if (axis.timed) gaps(context, stream, axis, inside, height, colour("--gap"));
  for (const event of stream.flagged) {
    const lane = event < stream.length ? stream.lane.at(event) : 0;
    const row = lanes.findIndex((one) => one.number === lane);
    if (row < 0) continue;
    const worst = stream.findingsOf(event).some((finding) => finding.severity === "error");
    context.fillStyle = colour(worst ? "--bad" : "--warn");
    const place = x(event);
    context.beginPath();
    context.moveTo(place, row * LANE + 9);
    context.lineTo(place - 4.5, row * LANE + 1);
    context.lineTo(place + 4.5, row * LANE + 1);
    context.fill();
  }
  context.fillStyle = colour("--accent");
  context.fillRect(x(cursor) - 0.75, 0, 1.5, height);
}

/** Draw stripes in pauses that last at least half a second and a fifteenth of the whole time. */
function gaps(context: CanvasRenderingContext2D, stream: Stream, axis: Axis, inside: number, height: number, colour: string): void {
  const whole = stream.time.at(stream.length - 1) - stream.time.at(0);
  const long = Math.max(500, whole / 15);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  for (let place = 0; place < 1; ) {
    const event = axis.event(place);
    const next = event + 1;
    if (next >= stream.length) break;
    if (stream.time.at(next) - stream.time.at(event) >= long) {
      const left = 8 + axis.at(event) * inside + 4;
      const right = 8 + axis.at(next) * inside - 4;
      context.save();
      context.beginPath();
      context.rect(left, 0, right - left, height);
      context.clip();
      context.beginPath();
      for (let stripe = left - height; stripe < right; stripe += 7) {
        context.moveTo(stripe, height);
        context.lineTo(stripe + height, 0);
      }
      context.stroke();
      context.restore();
    }
    place = Math.max(place + 1 / inside, axis.at(next));
  }
}

interface Props {
  stream: Stream;
  cursor: number;
  timed: boolean;
  /** A number that changes when there is more to draw. */
  version: number;
  dark: boolean;
  go(event: number): void;
  /** Called with the lane whose name was clicked. */
  onSelect: (lane: Lane) => void;
}

export function Lanes({ stream, cursor, timed, version, dark, go, onSelect }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [view, setView] = useState({ top: 0, height: 160, width: 0 });
  const axis = new Axis(stream, timed);
  const lanes = stream.framing ? [...stream.lanes, stream.framing] : stream.lanes;
  const from = Math.max(0, Math.floor(view.top / LANE) - 1);
  const visible = lanes.slice(from, from + Math.ceil(view.height / LANE) + 2);
  const current = stream.laneOf(Math.min(cursor, stream.length - 1)).number;

  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const measure = (): void => setView({ top: box.scrollTop, height: box.clientHeight, width: box.clientWidth });
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (canvas.current) draw(canvas.current, stream, axis, visible, cursor);
  }, [stream, version, cursor, timed, from, visible.length, view.width, dark]);
  useEffect(() => {
    const box = scroller.current;
    if (!box) return;
    const top = current * LANE;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + LANE > box.scrollTop + box.clientHeight) box.scrollTop = top + LANE - box.clientHeight;
  }, [current]);

  const drag = (event: PointerEvent): void => {
    const box = canvas.current?.getBoundingClientRect();
    if (box && (event.type === "pointerdown" || event.buttons & 1)) go(axis.event(Math.min(1, Math.max(0, (event.clientX - box.left - 8) / (box.width - 16)))));
  };
  return (
    <section class="lanes" aria-label="Lanes">
      <div class="scroll" ref={scroller} onScroll={(event) => setView({ ...view, top: event.currentTarget.scrollTop })}>
        <div class="inside" style={{ height: `${lanes.length * LANE}px` }}>
          <div class="visible" style={{ top: `${from * LANE}px` }}>
            <div class="names">
              {visible.map((lane) => (
                <button
                  type="button"
                  key={lane.number}
                  class={`lane${lane.number === current ? " current" : ""}`}
                  style={{ "--hue": hue(lane.title), height: `${LANE}px` }}
                  title={[lane.title, lane.name, lane.id].filter(Boolean).join(" · ")}
                  aria-current={lane.number === current}
                  onClick={() => {
                    onSelect(lane);
                    if (lane.number >= 0 && lane.events.length) go(lane.events.at(0));
                  }}
                >
                  <i class="dot" />
                  <span class="what">{lane.title}</span>
                  {lane.name && <span class="quiet"> {lane.name}</span>}
                </button>
              ))}
            </div>
            <canvas ref={canvas} aria-hidden="true" onPointerDown={drag} onPointerMove={drag} />
          </div>
        </div>
      </div>
    </section>
  );
}
