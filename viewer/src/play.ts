// Playback: the cursor moves by itself, at a multiple of the recorded speed or at a number of events per second.

import { useEffect, useRef } from "preact/hooks";
import type { Stream } from "./stream";

export interface Speed {
  name: string;
  /** The multiple of the recorded speed; 0 to use `events`. */
  times: number;
  /** Events per second, if `times` is 0. */
  events: number;
}

export const SPEEDS: Speed[] = [
  { name: "¼ × recorded speed", times: 0.25, events: 0 },
  { name: "recorded speed", times: 1, events: 0 },
  { name: "4 × recorded speed", times: 4, events: 0 },
  { name: "2 events a second", times: 0, events: 2 },
  { name: "10 events a second", times: 0, events: 10 },
  { name: "100 events a second", times: 0, events: 100 },
  { name: "1,000 events a second", times: 0, events: 1000 },
];

export function usePlaying(stream: Stream, cursor: number, playing: boolean, speed: Speed, go: (event: number) => void, stop: () => void): void {
  const at = useRef(cursor);
  at.current = cursor;
  useEffect(() => {
    if (!playing) return;
    let place = speed.times ? stream.time.at(at.current) : at.current;
    let before = performance.now();
    let frame = 0;
    const move = (now: number): void => {
      const elapsed = now - before;
      before = now;
      place += speed.times ? elapsed * speed.times : (elapsed / 1000) * speed.events;
      const next = speed.times ? stream.time.upTo(place) - 1 : Math.floor(place);
      if (next !== at.current && next >= 0) go(Math.min(next, stream.length - 1));
      if (next >= stream.length - 1 && stream.ending) stop();
      else frame = requestAnimationFrame(move);
    };
    frame = requestAnimationFrame(move);
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, stream]);
}
