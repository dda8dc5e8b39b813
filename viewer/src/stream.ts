// One stream: columns of its events, its lanes, its findings. No rule and no event is hard-coded here.

import type { Counts, Ending, Finding, Line, StreamEntry, Origin, Picture, Request, Step, Write } from "./lines";

/** A list of numbers that grows in place. */
export class Numbers {
  length = 0;
  private values: Float64Array;

  constructor(capacity = 64) {
    this.values = new Float64Array(capacity);
  }

  push(value: number): void {
    if (this.length === this.values.length) {
      const larger = new Float64Array(this.length * 2);
      larger.set(this.values);
      this.values = larger;
    }
    this.values[this.length++] = value;
  }

  at(index: number): number {
    return this.values[index] ?? Number.NaN;
  }

  set(index: number, value: number): void {
    this.values[index] = value;
  }

  /** The number of values that are at most this one; the values must ascend. */
  upTo(value: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.values[middle] as number) <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

export class Lane {
  kind = "";
  name: string | null = null;
  id: string | null = null;
  index: number | null = null;
  /** Its events, ascending. */
  events = new Numbers();
  /** Its events whose step differs from the step before. */
  changes: number[] = [];
  constructor(readonly number: number) {}

  get title(): string {
    return this.number === 0 ? this.kind || "response" : this.number < 0 ? "the parser's framing" : this.kind || "unknown item";
  }
}

/** The data of the marker after the last event. */
export const DONE = "[DONE]";

export class Stream {
  readonly lane = new Numbers();
  readonly number = new Numbers();
  readonly step = new Numbers();
  readonly time = new Numbers();
  readonly size = new Numbers();
  readonly kind = new Numbers();
  readonly data: string[] = [];
  /** The wire names, each once. */
  readonly kinds: string[] = [];
  readonly lanes: Lane[] = [new Lane(0)];
  readonly findings = new Map<number, Finding[]>();
  /** The events that have findings, ascending; the number of all events stands for the end of the stream. */
  readonly flagged: number[] = [];
  readonly origins = new Map<number, Origin>();
  /** The framing of a recording's tokens as a lane, whose events are those before which the framing changed its state. */
  framing: Lane | null = null;
  ending: Ending | null = null;
  /** The number of events, without the end marker. */
  events = 0;
  bytes = 0;
  /** Whether its events have sequence numbers. */
  numbered = false;
  private readonly kindOf = new Map<string, number>();

  constructor(
    readonly name: string,
    readonly request: Request | undefined,
    readonly page: Page,
  ) {}

  get length(): number {
    return this.data.length;
  }

  get timed(): boolean {
    return this.length > 1 && this.time.at(this.length - 1) - this.time.at(0) >= 50;
  }

  nameOf(event: number): string {
    return this.kinds[this.kind.at(event)] ?? "";
  }

  laneOf(event: number): Lane {
    return this.lanes[this.lane.at(event)] ?? (this.lanes[0] as Lane);
  }

  /** The machine of the whole stream; in the Responses API that of the response, beside those of its items. */
  get machine(): string {
    const [first] = (this.lanes[0] as Lane).changes.map((event) => this.stepOf(event)).filter((step) => step !== undefined);
    return first?.machine ?? "";
  }

  stepOf(event: number): Step | undefined {
    return this.page.steps[this.step.at(event)];
  }

  findingsOf(event: number): Finding[] {
    return this.findings.get(event) ?? [];
  }

  /** The number of findings of each severity. */
  get counts(): Counts {
    const counts: Counts = {};
    for (const { severity } of [...this.findings.values()].flat()) counts[severity] = (counts[severity] ?? 0) + 1;
    return counts;
  }

  body(event: number): unknown {
    try {
      return JSON.parse(this.data[event] ?? "");
    } catch {
      return undefined;
    }
  }

  event(laneNumber: number, name: string, number: number | null, step: number, time: number | null, size: number, data: string): void {
    const event = this.length;
    let kind = this.kindOf.get(name);
    if (kind === undefined) {
      kind = this.kinds.push(name) - 1;
      this.kindOf.set(name, kind);
    }
    this.kind.push(kind);
    this.lane.push(laneNumber);
    this.number.push(number ?? Number.NaN);
    this.numbered ||= number !== null;
    this.step.push(step);
    this.time.push(time ?? Number.NaN);
    this.size.push(size);
    this.data.push(data);
    if (data !== DONE) this.events++;
    this.bytes += size;
    const lane = this.laneAt(laneNumber);
    const before = lane.events.length ? this.step.at(lane.events.at(lane.events.length - 1)) : -2;
    if (step !== before) lane.changes.push(event);
    lane.events.push(event);
  }

  laneAt(number: number): Lane {
    for (let next = this.lanes.length; next <= number; next++) this.lanes.push(new Lane(next));
    return this.lanes[number] as Lane;
  }

  addFinding(event: number, finding: Finding): void {
    const findings = this.findings.get(event);
    if (findings) findings.push(finding);
    else {
      this.findings.set(event, [finding]);
      this.flagged.push(event);
    }
  }

  addOrigin(event: number, origin: Origin): void {
    this.origins.set(event, origin);
    if (!origin.framing?.length) return;
    this.framing ??= Object.assign(new Lane(-1), { kind: "harmony" });
    this.framing.events.push(event);
  }

  /** What the framing did before an event, and all edges that it fired until then. */
  framingAt(event: number): { step: Step; path: [string, string, string][] } | null {
    const lane = this.framing;
    if (!lane) return null;
    const path: [string, string, string][] = [];
    for (let at = 0; at < lane.events.upTo(event); at++) path.push(...(this.origins.get(lane.events.at(at))?.framing ?? []));
    const now = this.origins.get(event)?.framing ?? [];
    const state = path[path.length - 1]?.[2] ?? "";
    return { step: { machine: "harmony", fired: now.map(([source, trigger, dest]) => [source, trigger, dest, true, []]), states: state ? [state] : [], possible: [], state }, path };
  }

  /** Correct the step of an event, and of the events after it in its lane with the same step. */
  fix(event: number, step: number): void {
    const lane = this.laneOf(event);
    const before = this.step.at(event);
    for (let at = lane.events.upTo(event) - 1; at < lane.events.length; at++) {
      const one = lane.events.at(at);
      if (this.step.at(one) !== before) break;
      this.step.set(one, step);
    }
  }
}

/** The data of the page, read from its lines. */
export class Page {
  readonly steps: Step[] = [];
  stream: Stream | null = null;
  machines: Record<string, Picture> = {};
  rules: Record<string, [string, string, string]> = {};
  deviations: Record<string, [string, string]> = {};
  writes: Record<string, Write[]> = {};
  mode: "stream" | "list" = "stream";
  entries: StreamEntry[] = [];

  take(line: Line): void {
    switch (line[0]) {
      case "head": {
        const head = line[1];
        if (head.version !== 2) throw new Error(`The data of this page has version ${head.version}, but the page reads only version 2.`);
        Object.assign(this, { machines: head.machines, rules: head.rules, deviations: head.deviations, writes: head.writes, mode: head.mode });
        this.stream = head.stream && new Stream(head.stream.name, head.stream.request, this);
        break;
      }
      case "e":
        this.stream?.event(line[1], line[2], line[3], line[4], line[5], line[6], line[7]);
        break;
      case "step":
        this.steps[line[1]] = line[2];
        break;
      case "lane":
        if (this.stream) Object.assign(this.stream.laneAt(line[1]), line[2]);
        break;
      case "f":
        this.stream?.addFinding(line[1], line[2]);
        break;
      case "fix":
        for (let at = 0; at < line[1].length; at += 2) this.stream?.fix(line[1][at] as number, line[1][at + 1] as number);
        break;
      case "origin":
        this.stream?.addOrigin(line[1], line[2]);
        break;
      case "end":
        if (this.stream) this.stream.ending = line[1];
        break;
      case "list":
        this.entries = line[1];
        break;
    }
  }
}
