// The picture of a machine: its current state, the edge that just fired, the path so far. Python computes the coordinates.

import { useMemo } from "preact/hooks";
import type { Edge, Picture, Step } from "./lines";
import { short } from "./format";

export const key = (source: string, trigger: string, dest: string): string => `${source} ${trigger} ${dest}`;

const keysOn = (edge: Edge, trigger: string): string[] => edge.ends.map(([source, dest]) => key(source, trigger, dest));

const keysOf = (edge: Edge): string[] => edge.triggers.flatMap((trigger) => keysOn(edge, trigger.name));

/** The edges that a step fired, those without events included. */
export function firedKeys(step: Step | undefined): Set<string> {
  const keys = new Set<string>();
  for (const [source, trigger, dest, , silent] of step?.fired ?? []) {
    keys.add(key(source, trigger, dest));
    for (const [from, by, to] of silent) keys.add(key(from, by, to));
  }
  return keys;
}

/** The drawing order: later edges cover earlier ones. */
const depth = (look: string): number => (look === "fired" ? 3 : look.startsWith("path") ? 2 : 1);

interface Props {
  picture: Picture;
  /** What the event under the cursor did. */
  step?: Step | undefined;
  path?: Set<string>;
  visited?: Set<string>;
  /** Whether all edges of the step fired in turn, instead of one of them. */
  several?: boolean;
  prefix: string;
}

export function Machine({ picture, step, path, visited, several, prefix }: Props) {
  const fired = useMemo(() => firedKeys(step), [step]);
  const name = (...parts: string[]): string => [prefix, picture.name, ...parts].join("-").replace(/[^\w-]/g, "_");
  const looks = (edge: Edge): string => {
    const keys = keysOf(edge);
    if (keys.some((one) => fired.has(one))) return step && step.fired.length > 1 && !several ? "maybe" : "fired";
    return keys.some((one) => path?.has(one)) ? "path" : "";
  };
  const drawn = picture.edges.map((edge) => ({ edge, look: looks(edge) }));
  const state = (of: string): string => (step?.states.includes(of) ? (step.states.length > 1 ? " possible" : " lit") : step?.possible.includes(of) ? " possible" : visited?.has(of) ? " visited" : "");
  return (
    <svg
      class="machine"
      viewBox={`0 ${picture.up} ${picture.width} ${picture.height}`}
      role="img"
      aria-label={`The machine of ${picture.name}${step?.state ? `, in ${step.state}` : ""}`}
    >
      <defs>
        {["normal", "cut", "fail", "rail", "fired", "path"].map((one) => (
          <marker key={one} id={name("head", one)} class={`head ${one}`} refX="8.5" refY="4" markerWidth="9" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0L9 4L0 8z" />
          </marker>
        ))}
      </defs>
      {picture.frames.map(({ name: of, box: [x, y, width, height] }) => (
        <g key={of} class="frame">
          <rect x={x} y={y} width={width} height={height} rx="10" />
          <text x={x + 10} y={y + 16}>
            {of}
          </text>
        </g>
      ))}
      {picture.lines.flatMap((merged) => [
        ...merged.map((line) => <path key={`halo ${line.path}`} class="halo" d={line.path} />),
        ...merged.map((line) => (
          <path
            key={line.path}
            class={`line ${line.style}${line.rail ? " rail" : ""}`}
            d={line.path}
            {...(line.arrow ? { "marker-end": `url(#${name("head", line.rail ? "rail" : line.style)})` } : {})}
          />
        )),
      ])}
      {drawn
        .filter(({ look }) => look)
        .sort((one, other) => depth(one.look) - depth(other.look))
        .map(({ edge, look }) => (
          <path
            key={keysOf(edge).join()}
            id={name("edge", edge.source, edge.dest, edge.style)}
            class={`over ${look}`}
            d={edge.path}
            marker-end={`url(#${name("head", look === "maybe" ? "fired" : look)})`}
          />
        ))}
      {picture.states.map(({ name: of, look, box: [x, y, width, height], tool }) => (
        <g key={of} id={name("state", of)} class={`state ${look}${state(of)}`}>
          <rect x={x} y={y} width={width} height={height} rx="8" />
          {["good", "cut-end", "fail-end", "dropped"].includes(look) && <rect class="inner" x={x + 3.5} y={y + 3.5} width={width - 7} height={height - 7} rx="6" />}
          <text x={x + width / 2} y={y + height / 2 + 4.5}>
            {of}
          </text>
          {tool === "running" && <circle class="tool" cx={x + width - 9} cy={y + 9} r="3.5" />}
        </g>
      ))}
      {drawn.map(({ edge, look }) => {
        const whole = [`${edge.source} → ${edge.dest}`].concat(edge.triggers.map((trigger) => `${trigger.name}: ${trigger.events.map(short).join(", ") || "no event"}`)).join("\n");
        let owners: string[] = [];
        return (
          <g key={keysOf(edge).join()} class={`label ${edge.style} ${look}`}>
            <title>{whole}</title>
            {edge.text.map(([left, top, end, what, text]) => {
              if (what === "trigger") owners = text.split(/,\s*/).filter(Boolean);
              const is = (keys: Set<string> | undefined): boolean => owners.some((one) => keysOn(edge, one).some((each) => keys?.has(each)));
              return (
                <text key={`${top}`} class={`${what}${is(fired) ? " now" : is(path) ? " was" : ""}`} x={left} y={top} text-anchor={end}>
                  {text}
                </text>
              );
            })}
          </g>
        );
      })}
    </svg>
  );
}

/** A sentence about what an event did. */
export function StepSummary({ step, name }: { step: Step | undefined; name: string }) {
  if (!step?.machine) return <p class="step">This event belongs to no machine.</p>;
  if (!step.fired.length) return <p class="step none">No edge of {step.machine} emits {short(name)} here.</p>;
  const [only] = step.fired;
  if (step.fired.length > 1 || !only)
    return (
      <p class="step">
        One of: {step.fired.map(([source, trigger, dest]) => `${source} ─${trigger}→ ${dest}`).join(", ")}. Later events decide which.
      </p>
    );
  const [source, trigger, dest, whole, silent] = only;
  return (
    <p class="step">
      {silent.map(([from, by]) => (
        <span key={from} class="silent">
          <b>{from}</b> ─<i>{by}</i>→{" "}
        </span>
      ))}
      <b>{source}</b> ─<i>{trigger}</i>→ <b>{dest}</b>
      <span class="quiet">{` emitted ${short(name)}${whole ? "" : "; more of its events may follow"}`}</span>
    </p>
  );
}
