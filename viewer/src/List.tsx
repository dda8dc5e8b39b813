// The recent responses of a server, newest first.

import { Header } from "./Bars";
import { bytes } from "./format";
import type { Page } from "./stream";
import { useTheme } from "./theme";

export function List({ page }: { page: Page }) {
  const { theme, turn } = useTheme();
  const entries = page.entries;
  return (
    <>
      <Header streams={[]} theme={theme} redacted={page.redacted} notice="" title="recent streams of this server" turn={turn} />
      <main class="list">
        {entries.length ? (
          <table>
            <thead>
              <tr>
                <th scope="col">response</th>
                <th scope="col">start</th>
                <th scope="col">status</th>
                <th scope="col">size</th>
              </tr>
            </thead>
            <tbody>
              {entries.map((one) => (
                <tr key={one.number}>
                  <td>
                    <a href={`${one.number}/`}>{one.id || "a response without an id"}</a>
                    {one.model && <span class="quiet"> {one.model}</span>}
                  </td>
                  <td>{new Date(one.started * 1000).toLocaleTimeString()}</td>
                  <td>
                    <span class={`pill ${one.ended ? "" : "live"}`}>{one.ended ? "ended" : "streaming"}</span>
                  </td>
                  <td>
                    {bytes(one.bytes)}
                    {one.truncated && <span class="quiet"> truncated</span>}
                  </td>
                </tr>
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
