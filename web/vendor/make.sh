#!/usr/bin/env bash
# Makes the bundles in this directory again: web/vendor/make.sh
#
# Needs node 20 and npm. Each package has its exact version here, so the same bundles come out.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >package.json <<'E'
{
  "private": true,
  "dependencies": {
    "@codemirror/language": "6.13.1",
    "@codemirror/legacy-modes": "6.5.5",
    "@codemirror/merge": "6.12.3",
    "@codemirror/state": "6.7.6",
    "@codemirror/streamparser": "6.0.0",
    "@codemirror/view": "6.43.15",
    "@lezer/common": "1.5.5",
    "@lezer/highlight": "1.2.5",
    "@lezer/lr": "1.4.12",
    "@marijn/find-cluster-break": "1.0.4",
    "crelt": "1.0.7",
    "htm": "3.1.1",
    "preact": "11.2.0",
    "style-mod": "4.1.5",
    "w3c-keyname": "2.2.8"
  },
  "devDependencies": { "esbuild": "0.28.2", "terser": "5.51.4" }
}
E
npm install --silent --no-audit --no-fund --ignore-scripts

cat >preact.in.js <<'E'
import { h, render, Fragment } from "preact";
import htm from "htm";
export const html = htm.bind(h);
export { h, render, Fragment };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from "preact/hooks";
E
cat >codemirror.in.js <<'E'
export { EditorState, StateField, StateEffect, RangeSetBuilder } from "@codemirror/state";
export { EditorView, Decoration, lineNumbers, gutter, GutterMarker, highlightSpecialChars, WidgetType } from "@codemirror/view";
export { MergeView, unifiedMergeView, getChunks } from "@codemirror/merge";
export { syntaxHighlighting, HighlightStyle, StreamLanguage } from "@codemirror/language";
export { tags } from "@lezer/highlight";
export { python } from "@codemirror/legacy-modes/mode/python";
export { javascript, typescript, json } from "@codemirror/legacy-modes/mode/javascript";
export { rust } from "@codemirror/legacy-modes/mode/rust";
export { yaml } from "@codemirror/legacy-modes/mode/yaml";
export { xml, html } from "@codemirror/legacy-modes/mode/xml";
export { css } from "@codemirror/legacy-modes/mode/css";
export { go } from "@codemirror/legacy-modes/mode/go";
export { c, cpp, java, csharp, kotlin } from "@codemirror/legacy-modes/mode/clike";
export { shell } from "@codemirror/legacy-modes/mode/shell";
export { toml } from "@codemirror/legacy-modes/mode/toml";
export { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
E
for bundle in preact codemirror; do
    node_modules/esbuild/bin/esbuild "$bundle.in.js" --bundle --format=esm --target=es2022 \
        --legal-comments=none --metafile="$bundle.json" --log-level=error --outfile="$bundle.whole.js"
    node_modules/.bin/terser "$bundle.whole.js" --module --ecma 2022 --compress passes=3 --mangle \
        --output "$here/$bundle.js"
done

node - "$here" <<'E'
const fs = require("fs"), path = require("path"), crypto = require("crypto");
const here = process.argv[2];
const files = ["preact", "codemirror"].map((bundle) => {
  const inputs = Object.keys(JSON.parse(fs.readFileSync(`${bundle}.json`)).inputs);
  const names = new Set(inputs.map((file) => file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean));
  const packages = [...names].sort().map((name) => {
    const { version, license } = JSON.parse(fs.readFileSync(`node_modules/${name}/package.json`));
    return { name, version, licence: license };
  });
  const text = packages.map(({ name, version }) =>
    `${name} ${version}\n\n${fs.readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}\n`);
  fs.writeFileSync(path.join(here, `${bundle}.licences.txt`), text.join(`\n${"-".repeat(72)}\n\n`));
  return { bundle, packages };
});
const sum = (file) => crypto.createHash("sha256").update(fs.readFileSync(path.join(here, file))).digest("hex");
const manifest = files.flatMap(({ bundle, packages }) => [
  { file: `${bundle}.js`, sha256: sum(`${bundle}.js`), packages },
  { file: `${bundle}.licences.txt`, sha256: sum(`${bundle}.licences.txt`) },
]);
fs.writeFileSync(path.join(here, "manifest.json"), `${JSON.stringify({ files: manifest }, null, 2)}\n`);
E
