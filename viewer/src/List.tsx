// The recent responses of a server, newest first.

import { Header, verdict } from "./Bars";
import { bytes, count, seconds } from "./format";
import type { StreamEntry } from "./lines";
import type { Page } from "./stream";
import { useTheme } from "./theme";

export function List({ page }: { page: Page }) {
  const { theme, turn } = useTheme();
  const entries = page.entries;
  return (
    <>
      <Header theme={theme} notice="" title="recent streams of this server" turn={turn} />
      <main class="list">
        {entries.length ? (
          <table>
            <thead>
              <tr>
                <th scope="col">response</th>
                <th scope="col">verdict</th>
                <th scope="col">first words</th>
                <th scope="col" class="amount">tokens</th>
                <th scope="col" class="amount">duration</th>
                <th scope="col" class="amount">size</th>
                <th scope="col">start</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((one) => (
                <Row key={one.number} entry={one} />
              ))}
            </tbody>
          </table>
        ) : (
          <p class="empty" role="status">
            No stream yet. New streams appear here.
          </p>
        )}
      </main>
    </>
  );
}

function Row({ entry }: { entry: StreamEntry }) {
  const { look, text } = verdict(entry.findings ?? {}, entry.ending ?? null);
  const [input, output] = entry.tokens ?? [null, null];
  return (
    <tr>
      <td>
        <a href={`${entry.number}/`}>{entry.id || "a response without an id"}</a>
        {entry.model && <div class="quiet">{entry.model}</div>}
      </td>
      <td>
        <span class={`pill ${look}`}>{text}</span>
      </td>
      <td class="words" title={entry.words}>
        {entry.words}
      </td>
      <td class="amount" title="of the input + of the output">
        {output !== null && `${input === null ? "" : `${count(input)} + `}${count(output)}`}
      </td>
      <td class="amount">{seconds(entry.duration)}</td>
      <td class="amount">
        {bytes(entry.bytes)}
        {entry.truncated && <span class="quiet"> truncated</span>}
      </td>
      <td>{new Date(entry.started * 1000).toLocaleTimeString()}</td>
    </tr>
  );
}
