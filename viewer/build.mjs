// Bundle the page: node build.mjs FOLDER writes viewer.js and viewer.css there. The same sources give the same bytes.
import { build } from "esbuild";
import { join } from "node:path";

const folder = process.argv[2];
const options = { bundle: true, minify: true, target: ["es2022"], charset: "utf8", legalComments: "none", logLevel: "warning" };

await build({
  ...options,
  entryPoints: ["src/main.tsx"],
  outfile: join(folder, "viewer.js"),
  format: "iife",
  jsx: "automatic",
  jsxImportSource: "preact",
});
await build({ ...options, entryPoints: ["src/style.css"], outfile: join(folder, "viewer.css") });
