// The entry point: reads the lines of the page's data, and draws the page as they arrive.

import { render } from "preact";
import { Header } from "./Bars";
import { read } from "./lines";
import { List } from "./List";
import { Page } from "./stream";
import { StreamView } from "./StreamView";

const root = document.getElementById("app") as HTMLElement;
const page = new Page();
let version = 0;
let lastDraw = 0;
let timer = 0;

/** Milliseconds between two drawings while lines arrive. */
const INTERVAL = 120;

function draw(): void {
  clearTimeout(timer);
  timer = 0;
  lastDraw = performance.now();
  version++;
  if (page.mode === "list") render(<List page={page} />, root);
  else if (page.stream) render(<StreamView page={page} stream={page.stream} version={version} />, root);
}

/** Draw at once at first, then at most once per interval; the last lines are always drawn. */
function pause(): void {
  const wait = version < 2 ? 0 : INTERVAL - (performance.now() - lastDraw);
  if (wait <= 0) draw();
  else timer ||= window.setTimeout(draw, wait);
}

function fail(error: unknown): void {
  render(
    <>
      <Header theme="auto" notice="" turn={() => {}} />
      <main class="waiting">
        <p role="alert">{error instanceof Error ? error.message : String(error)}</p>
      </main>
    </>,
    root,
  );
}

function end(): void {
  if (page.stream) page.stream.ending ??= { status: null, legal: false, readable: true, rules: {}, broken: "the connection ended before the stream" };
  draw();
  if (page.mode === "list") setTimeout(load, 2000);
}

const load = (): Promise<void> => read((line) => page.take(line), pause).then(end, fail);

void load();
