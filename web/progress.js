// Long operations, which report their progress: a bisection, a command, a rerun.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { postStreamed } from "./source.js";
import { visible } from "./text.js";

export function useStream() {
  const [state, setState] = useState({ busy: false, problem: null, outcome: null });
  const [events, setEvents] = useState([]);
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const run = async (path, body) => {
    abort.current = new AbortController();
    setEvents([]);
    setState({ busy: true, problem: null, outcome: null });
    try {
      const outcome = await postStreamed(path, body, (event, data) => setEvents((known) => [...known, { event, data }].slice(-2000)), abort.current.signal);
      setState({ busy: false, problem: null, outcome });
    } catch (problem) {
      setState({ busy: false, problem: problem.name === "AbortError" ? null : problem, outcome: null });
    }
  };
  return { ...state, events, run, stop: () => abort.current?.abort() };
}

// The values of a form, and a setter by field name.
export function useForm(initial) {
  const [form, setForm] = useState(initial);
  return [form, (name) => ({ target }) => setForm({ ...form, [name]: target.type === "checkbox" ? target.checked : target.value })];
}

export function Told({ events, busy }) {
  return html`<div role="log" aria-label="Progress" class="bounded">${events.filter(({ event }) => event === "progress").map(({ data }, number) => html`<p key=${number} class="quiet progress">${visible(data.text ?? "")}</p>`)}
    ${busy && html`<p class="quiet">Running…</p>`}</div>`;
}
