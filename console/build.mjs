// Builds the console: src/ into crates/server/src/http/console, or into the folder that is named. The same sources make the
// same bytes: no time, no path and no name of the machine is in them, and the versions of the libraries are locked.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, "../crates/server/src/http/console"));
await mkdir(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/app.jsx", style: "src/style.css" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  banner: { js: "/* Dunlin's console. Contains Preact and uPlot (MIT). Sources: console/ */" },
});
await copyFile(path.join(here, "src/index.html"), path.join(out, "index.html"));
