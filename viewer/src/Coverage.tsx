// How often each edge of each machine fired in a set of streams, and the streams that fire a selected edge.

import { useMemo, useState } from "preact/hooks";
import { Header } from "./Bars";
import { plural, short } from "./format";
import type { Edge } from "./lines";
import { Machine } from "./Machine";
import type { Page } from "./stream";
import { useTheme } from "./theme";

const key = (machine: string, source: string, trigger: string, dest: string): string => [machine, source, trigger, dest].join(" ");

export function CoverageView({ page }: { page: Page }) {
  const { theme, turn } = useTheme();
  const cover = page.cover;
  const [name, setName] = useState("response");
  const [edge, setEdge] = useState<Edge | null>(null);
  const counts = useMemo(() => new Map(cover?.edges.map((one) => [key(one.machine, one.source, one.trigger, one.dest), one])), [cover]);
  const machines = Object.values(page.machines).filter((machine) => machine.states.some((state) => state.look !== "normal" && state.look !== "initial"));
  const all = (machine: string, edge: Edge, trigger: string) => edge.ends.map(([source, dest]) => counts.get(key(machine, source, trigger, dest)));
  const of = (machine: string, edge: Edge, trigger: string): [number, number] =>
    all(machine, edge, trigger).reduce<[number, number]>(([count, possible], one) => [count + (one?.count ?? 0), possible + (one?.possible ?? 0)], [0, 0]);
  const share = (machine: string): [number, number] => {
    const edges = (page.machines[machine]?.edges ?? []).flatMap((one) => one.triggers.flatMap((trigger) => all(machine, one, trigger.name)));
    return [edges.filter((one) => one?.count).length, edges.length];
  };
  const picture = page.machines[name] ?? machines[0];
  const [fired, total] = machines.map((machine) => share(machine.name)).reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
  const files = edge ? [...new Set(edge.triggers.flatMap((trigger) => all(name, edge, trigger.name).flatMap((one) => one?.files ?? [])))] : [];
  return (
    <>
      <Header streams={[]} theme={theme} redacted={page.redacted} notice="" title="coverage of the lifecycles" turn={turn}>
        {cover && (
          <span class="pill good">
            {fired} of {total} edges
          </span>
        )}
      </Header>
      <main class="main coverage">
        <section aria-label="Machines">
          <p class="summary" role="status">
            {cover ? plural(cover.files.length, "stream") : "Reading the streams …"}
          </p>
          <ul class="machines">
            {machines.map((machine) => {
              const [some, total] = share(machine.name);
              return (
                <li key={machine.name}>
                  <button type="button" aria-current={machine.name === name} onClick={() => (setName(machine.name), setEdge(null))}>
                    <span>{machine.name}</span>
                    <span class="quiet">
                      {some}/{total}
                    </span>
                    <span class="bar">
                      <i style={{ width: `${total ? (100 * some) / total : 0}%` }} />
                    </span>
                  </button>
                </li>
              );
            })}
          </ul>
        </section>
        <section class="centre" aria-label="The machine">
          <div class="caption">
            <h2>{picture?.name}</h2>
            <p class="step quiet">Solid green: fired, with the count. Dashed green: may have fired. Dotted: never fired. Select an edge to see the streams that fire it.</p>
          </div>
          {picture && (
            <div class="picture" role="group" aria-label={`Picture of ${picture.name}`}>
              <Machine picture={picture} prefix="c" counts={{ of: (one, trigger) => of(picture.name, one, trigger), selected: edge, select: setEdge }} />
            </div>
          )}
        </section>
        <section class="inspector" aria-label="The edge">
          {edge ? (
            <div class="panel" tabIndex={0} role="group" aria-label="The selected edge">
              <div class="caption">
                {edge.triggers.map((trigger) => {
                  const [times, possible] = of(name, edge, trigger.name);
                  const facts = [times ? `fired ${plural(times, "time")}` : "", possible ? `may have fired ${plural(possible, "time")}: another edge emits the same events` : ""];
                  return (
                    <p key={trigger.name} class="step">
                      <b>{edge.source}</b> ─<i>{trigger.name}</i>→ <b>{edge.dest}</b>
                      <br />
                      <span class="quiet">
                        {facts.filter(Boolean).join("; ") || "never fired"} · emits {trigger.events.map(short).join(", ") || "nothing"}
                      </span>
                    </p>
                  );
                })}
              </div>
              <ul class="files">
                {files.slice(0, 1000).map((file) => {
                  const about = cover?.files[file];
                  return (
                    <li key={file}>
                      {cover?.linked ? (
                        <a href={`${file}/`} target="_blank" rel="noreferrer">
                          {about?.name}
                        </a>
                      ) : (
                        about?.name
                      )}
                      <span class="quiet">
                        {" "}
                        {plural(about?.events ?? 0, "event")}
                        {about?.findings ? `, ${plural(about.findings, "finding")}` : ""}
                      </span>
                    </li>
                  );
                })}
              </ul>
              {!files.length && <p class="empty">No stream in the folder fires this edge.</p>}
            </div>
          ) : (
            <p class="empty">No edge is selected.</p>
          )}
        </section>
      </main>
    </>
  );
}
