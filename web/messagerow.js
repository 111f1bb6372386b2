// A message in the timeline: who speaks, one line, and what contradicts it.

import { html } from "./vendor/preact.js";
import { markedText } from "./search.js";
import { clock, compact, oneLine, visible } from "./text.js";

export const ROLES = {
  user: { word: "prompt", path: "M5.5 6.3a2.6 2.6 0 1 0 0-5.2a2.6 2.6 0 0 0 0 5.2M.8 11.6q.3-3.4 4.7-3.4t4.7 3.4" },
  assistant: { word: "message", path: "M.9 1.2h9.2v6.8h-5.2l-2.4 3v-3h-1.6z" },
  reasoning: { word: "reasoning", path: "M1.4 6h.01M5.5 6h.01M9.6 6h.01" },
  system: { word: "system", path: "M1 2.5h9M1 6h9M1 9.5h5" },
};

export function RoleIcon({ role }) {
  const { word, path } = ROLES[role] ?? ROLES.system;
  return html`<svg class="role ${role}" width="11" height="12" viewBox="0 0 11 12" role="img" aria-label=${word}><title>${word}</title><path d=${path} /></svg>`;
}

// The usage in words. An answer's parts may all have the usage of the whole answer.
export function usageOf({ model, input_tokens: input, output_tokens: output, cost }) {
  const tokens = [input !== null && `${input.toLocaleString("en")} tokens in`, output !== null && `${output.toLocaleString("en")} out`].filter(Boolean).join(", ");
  return [model && visible(model), tokens, cost !== null && `$${cost.toFixed(cost < 0.1 ? 4 : 2)}`].filter(Boolean);
}

export function MessageRow({ model, message, index, top }) {
  const { seq, role, claim } = message;
  const choose = () => model.set({ follows: false }) ?? model.select(index, { replace: false });
  const blame = (event) => {
    event.stopPropagation();
    model.goTo(claim.call, { isLink: true });
  };
  const agents = Object.keys(model.whole?.timeline?.agents ?? {}).length > 1;
  const tokens = message.output_tokens ?? message.input_tokens;
  return html`<div id=${`row-${index}`} role="option" aria-selected=${index === model.index} aria-setsize=${model.list.total} aria-posinset=${index + 1}
    class="row message ${role} ${claim ? "claims" : ""}" style=${{ transform: `translateY(${top}px)` }} onClick=${choose}>
    <span class="position">${seq}</span><span class="sign"><${RoleIcon} role=${role} /></span>
    <span class="what">${markedText(oneLine(message.text.trim(), 300), model.filters.text)}</span>
    ${agents && html`<span class="agent" title=${visible(message.agent || "no agent")}>${visible(message.agent)}</span>`}
    ${claim && html`<span class="fork conflicted claim" title=${`Claims success, but call ${claim.call} ended with ${claim.ended}: ${oneLine(claim.command, 200)}`} onClick=${blame}>but ${oneLine(claim.ended, 20)}</span>`}
    <span class="took" title=${[...usageOf(message), clock(message.time)].join(", ")}>${tokens === null ? "" : `${compact(tokens)} tok`}</span></div>`;
}
