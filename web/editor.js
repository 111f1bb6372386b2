// Text and differences, shown by CodeMirror. It lives below a shadow root: there it adopts its style
// sheets, which the page's Content-Security-Policy allows.

import { html, useEffect, useRef } from "./vendor/preact.js";
import {
  Decoration, EditorState, EditorView, getChunks, GutterMarker, gutter, HighlightStyle, highlightSpecialChars, lineNumbers, MergeView,
  syntaxHighlighting, tags, unifiedMergeView,
} from "./vendor/codemirror.js";
import { languageOf } from "./languages.js";
import { escaped } from "./text.js";

const LINE_MOST = 5000;
const TEXT_MOST = 3_000_000;

// Cuts long lines and texts: browsers can't lay out a line of megabytes.
export function fitting(text) {
  let cut = text.length > TEXT_MOST ? `${text.slice(0, TEXT_MOST)}\n… ${text.length - TEXT_MOST} more characters` : text;
  if (cut.split("\n").some((line) => line.length > LINE_MOST)) {
    cut = cut.split("\n").map((line) => (line.length > LINE_MOST ? `${line.slice(0, LINE_MOST)} … ${line.length - LINE_MOST} more characters` : line)).join("\n");
  }
  return { text: cut, isCut: cut.length !== text.length };
}

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.modifier, tags.operatorKeyword, tags.controlKeyword], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.comment, tags.meta, tags.quote], color: "var(--code-comment)" },
  { tag: [tags.number, tags.bool, tags.atom, tags.null], color: "var(--code-number)" },
  { tag: [tags.definition(tags.variableName), tags.typeName, tags.className, tags.tagName, tags.propertyName], color: "var(--code-name)" },
  { tag: [tags.heading, tags.strong], fontWeight: "600" },
  { tag: tags.link, color: "var(--accent)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "12.5px", backgroundColor: "var(--panel)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--panel)", color: "var(--quiet)", border: "none" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-changedLine": { backgroundColor: "var(--added) !important" },
  "&.cm-merge-a .cm-changedLine, .cm-deletedChunk": { backgroundColor: "var(--removed) !important" },
  ".cm-insertedLine": { backgroundColor: "var(--added)" },
  ".cm-changedText": { background: "var(--added-strong) !important" },
  "&.cm-merge-a .cm-changedText, .cm-deletedText": { background: "var(--removed-strong) !important" },
  ".cm-deletedLine del": { textDecoration: "none" },
  ".cm-changedLineGutter": { background: "var(--good) !important" },
  ".cm-deletedLineGutter, &.cm-merge-a .cm-changedLineGutter": { background: "var(--bad) !important" },
  ".cm-spot": { backgroundColor: "var(--found)" },
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: '"⋯"', margin: "0 6px" },
  ".cm-collapsedLines": { background: "var(--soft)", color: "var(--quiet)", padding: "2px 12px" },
  ".cm-blame": { padding: "0 10px 0 6px", cursor: "pointer", whiteSpace: "pre", fontFamily: "var(--sans)", fontSize: "11.5px" },
  ".cm-blame:hover": { color: "var(--accent)" },
});

function base(path, text, label) {
  return [
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ tabindex: "0", "aria-label": label, role: "textbox", "aria-multiline": "true", "aria-readonly": "true" }),
    lineNumbers(),
    highlightSpecialChars({ render: shownSpecial, addSpecialChars: /[\u0080-\u009f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufff9-\ufffb]/g }),
    syntaxHighlighting(colours),
    look,
    languageOf(path, text.slice(0, 80)),
  ];
}

function shownSpecial(code) {
  const element = document.createElement("span");
  element.className = "cm-specialChar";
  element.textContent = escaped(code);
  return element;
}

function useShadow(make, keys) {
  const host = useRef(null);
  useEffect(() => {
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    root.replaceChildren(parent);
    const view = make(parent, root);
    return () => view.destroy();
  }, keys);
  return host;
}

// `spot` is the number of a line to show and mark.
export function TextView({ path, text, label = path, blame = null, onLine = null, spot = null }) {
  const host = useShadow((parent, root) => {
    const extensions = base(path, text, label);
    if (blame) extensions.push(blameGutter(blame, onLine));
    const state = EditorState.create({ doc: text, extensions });
    if (spot === null || spot > state.doc.lines) return new EditorView({ parent, root, state });
    const { from } = state.doc.line(spot);
    extensions.push(EditorView.decorations.of(Decoration.set(Decoration.line({ class: "cm-spot" }).range(from))));
    return new EditorView({ parent, root, state: EditorState.create({ doc: text, extensions }), scrollTo: EditorView.scrollIntoView(from, { y: "center" }) });
  }, [path, text, blame, spot]);
  return html`<div class="editor" ref=${host} data-scrolls></div>`;
}

export function SplitDiff({ path, before, after, labels = ["Before", "After"] }) {
  const host = useShadow((parent, root) => new MergeView({
    parent, root,
    a: { doc: before, extensions: base(path, before, labels[0]) },
    b: { doc: after, extensions: base(path, after, labels[1]) },
    collapseUnchanged: { margin: 3, minSize: 6 },
    diffConfig: { scanLimit: 5000, timeout: 500 },
  }), [path, before, after]);
  return html`<div class="editor" ref=${host} data-scrolls></div>`;
}

export function InlineDiff({ path, before, after, whole = false }) {
  const host = useShadow((parent, root) => {
    const merge = unifiedMergeView({
      original: before, mergeControls: false, syntaxHighlightDeletions: true,
      collapseUnchanged: whole ? undefined : { margin: 3, minSize: 6 },
      diffConfig: { scanLimit: 5000, timeout: 500 },
    });
    return new EditorView({ parent, root, state: EditorState.create({ doc: after, extensions: [oldNumbers(before), ...base(path, after, `${path}, with its changes`), merge] }) });
  }, [path, before, after, whole]);
  return html`<div class="editor" ref=${host} data-scrolls></div>`;
}

// The numbers of the original's lines, also of removed lines.
function oldNumbers(original) {
  const doc = EditorState.create({ doc: original }).doc;
  const known = new WeakMap();
  const spansOf = (state) => {
    const { chunks } = getChunks(state) ?? { chunks: [] };
    if (!known.has(chunks)) {
      const lines = (text, from, to) => (from < to ? [text.lineAt(from).number, text.lineAt(Math.min(to - 1, text.length)).number + 1] : [text.lineAt(Math.min(from, text.length)).number, 0]);
      known.set(chunks, chunks.map(({ fromA, toA, fromB, toB }) => ({ at: fromB, a: lines(doc, fromA, toA), b: lines(state.doc, fromB, toB) })));
    }
    return known.get(chunks);
  };
  const numberOf = (state, line) => {
    let shift = 0;
    for (const { a, b } of spansOf(state)) {
      if (line < b[0]) break;
      if (line < b[1]) return null;
      shift += (a[1] ? a[1] - a[0] : 0) - (b[1] ? b[1] - b[0] : 0);
    }
    return line + shift;
  };
  return gutter({
    class: "cm-lineNumbers cm-oldNumbers",
    lineMarker: (view, block) => new NumberMarker([numberOf(view.state, view.state.doc.lineAt(block.from).number) ?? ""]),
    widgetMarker: (view, widget, block) => {
      const span = block.length === 0 && spansOf(view.state).find(({ at, a }) => at === block.from && a[1]);
      return span ? new NumberMarker(Array.from({ length: span.a[1] - span.a[0] }, (_, number) => span.a[0] + number)) : null;
    },
    initialSpacer: () => new NumberMarker([doc.lines]),
  });
}

class NumberMarker extends GutterMarker {
  constructor(numbers) {
    super();
    this.numbers = numbers;
  }

  eq(other) {
    return other.numbers.join() === this.numbers.join();
  }

  toDOM() {
    const element = document.createElement("div");
    for (const number of this.numbers) element.appendChild(document.createElement("div")).textContent = String(number);
    return element;
  }
}

class BlameMarker extends GutterMarker {
  constructor(text, title) {
    super();
    this.text = text;
    this.title = title;
  }

  eq(other) {
    return other.text === this.text && other.title === this.title;
  }

  toDOM() {
    const element = document.createElement("div");
    element.className = "cm-blame";
    element.textContent = this.text;
    element.title = this.title;
    return element;
  }
}

function blameGutter(blame, onLine) {
  const lineOf = (view, block) => view.state.doc.lineAt(block.from).number;
  return gutter({
    class: "cm-blame-gutter",
    lineMarker: (view, block) => {
      const { text, title } = blame(lineOf(view, block));
      return new BlameMarker(text, title);
    },
    initialSpacer: () => new BlameMarker("#000000 write_file  agent  ", ""),
    domEventHandlers: {
      mousedown: (view, block) => {
        onLine(lineOf(view, block));
        return true;
      },
    },
  });
}
