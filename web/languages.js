// Syntax highlighting by file name.

import * as cm from "./vendor/codemirror.js";

const markdown = {
  name: "markdown",
  startState: () => ({ code: false }),
  token(stream, state) {
    if (stream.sol()) {
      if (stream.match(/^(```|~~~).*/)) {
        state.code = !state.code;
        return "meta";
      }
      if (!state.code && stream.match(/^#{1,6} .*/)) return "heading";
      if (!state.code && stream.match(/^\s*([-*+]|\d+[.)]) /)) return "keyword";
      if (!state.code && stream.match(/^>.*/)) return "quote";
    }
    if (state.code) {
      stream.skipToEnd();
      return "string";
    }
    if (stream.match(/^`[^`]*`/)) return "string";
    if (stream.match(/^\*\*[^*]+\*\*/)) return "strong";
    if (stream.match(/^\[[^\]]*\]\([^)]*\)/)) return "link";
    stream.next();
    stream.eatWhile(/[^`*[]/);
    return null;
  },
};

const BY_ENDING = {
  py: cm.python, pyi: cm.python, js: cm.javascript, mjs: cm.javascript, cjs: cm.javascript, jsx: cm.javascript,
  ts: cm.typescript, tsx: cm.typescript, mts: cm.typescript, json: cm.json, jsonl: cm.json, rs: cm.rust,
  yml: cm.yaml, yaml: cm.yaml, toml: cm.toml, lock: cm.toml, html: cm.html, htm: cm.html, xml: cm.xml, svg: cm.xml,
  css: cm.css, go: cm.go, c: cm.c, h: cm.c, cc: cm.cpp, cpp: cm.cpp, hpp: cm.cpp, cxx: cm.cpp, java: cm.java,
  cs: cm.csharp, kt: cm.kotlin, sh: cm.shell, bash: cm.shell, zsh: cm.shell, md: markdown, markdown,
};
const made = new Map();

export function languageOf(path, start = "") {
  const name = path.split("/").at(-1).toLowerCase();
  const ending = name.includes(".") ? name.split(".").at(-1) : "";
  let mode = BY_ENDING[ending];
  if (/^dockerfile|^containerfile/.test(name)) mode = cm.dockerFile;
  if (!mode && start.startsWith("#!")) mode = /python/.test(start) ? cm.python : /sh\b/.test(start) ? cm.shell : undefined;
  if (!mode) return [];
  if (!made.has(mode)) made.set(mode, cm.StreamLanguage.define(mode));
  return made.get(mode);
}
