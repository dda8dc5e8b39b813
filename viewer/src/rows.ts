// The rows of the list of events: consecutive events of the same name and item are folded into one row.

import { Numbers, type Stream } from "./stream";

export interface Filter {
  text: string;
  lane: number;
  kind: number;
}

export const NO_FILTER: Filter = { text: "", lane: -1, kind: -1 };

export const isFiltered = (filter: Filter): boolean => filter.text !== "" || filter.lane >= 0 || filter.kind >= 0;

/** How long the search may block the page at a time, in milliseconds. */
const SLICE = 10;

/** The rows of a stream under a filter. They grow with the stream. */
export class Rows {
  /** The first event of each row, and the one after its last. */
  readonly starts = new Numbers();
  readonly ends = new Numbers();
  /** The number of events that were searched. */
  searched = 0;
  private run = -1;
  private readonly needle: string;

  /**
   * @param open - The first events of the runs that are not folded.
   */
  constructor(
    readonly stream: Stream,
    readonly filter: Filter,
    readonly open: ReadonlySet<number>,
  ) {
    this.needle = filter.text.toLowerCase();
  }

  get length(): number {
    return this.starts.length;
  }

  get done(): boolean {
    return this.searched >= this.stream.length;
  }

  matches(event: number): boolean {
    const { stream, filter } = this;
    if (filter.lane >= 0 && stream.lane.at(event) !== filter.lane) return false;
    if (filter.kind >= 0 && stream.kind.at(event) !== filter.kind) return false;
    if (!this.needle) return true;
    return stream.nameOf(event).includes(this.needle) || (stream.data[event] as string).toLowerCase().includes(this.needle);
  }

  /** Search further events, for one slice of time. */
  grow(): void {
    const { stream, starts, ends } = this;
    const until = performance.now() + SLICE;
    while (this.searched < stream.length) {
      const event = this.searched++;
      if (this.matches(event)) {
        const last = starts.length - 1;
        const first = starts.at(last);
        const continues =
          last >= 0 &&
          ends.at(last) === event &&
          stream.kind.at(first) === stream.kind.at(event) &&
          stream.lane.at(first) === stream.lane.at(event) &&
          !stream.findings.has(event) &&
          !stream.findings.has(first);
        if (!continues) this.run = event;
        if (continues && !this.open.has(this.run)) ends.set(last, event + 1);
        else {
          starts.push(event);
          ends.push(event + 1);
        }
      }
      if ((event & 63) === 0 && performance.now() > until) return;
    }
  }

  /** Return the row of an event, or else the last row before it. */
  rowOf(event: number): number {
    return Math.max(0, this.starts.upTo(event) - 1);
  }

  has(event: number): boolean {
    const row = this.rowOf(event);
    return row < this.length && this.starts.at(row) <= event && event < this.ends.at(row);
  }
}
