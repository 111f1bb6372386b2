// Commands that wait for an approval.

import { html, useState } from "./vendor/preact.js";
import { visible } from "./text.js";

export const ANSWERS = [["once", "Allow once"], ["session", "Allow for the session"], ["refuse", "No"]];

export function Questions({ model }) {
  const questions = model.live?.questions ?? [];
  if (!questions.length || !model.writable) return null;
  const answer = (call, word, reason) => model.live.answer(call, word, reason).catch((error) => model.say(error.message));
  return html`<div class="questions" role="alert">${questions.map((question) => html`<${Question} key=${question.call} question=${question} onAnswer=${answer} />`)}</div>`;
}

export function Question({ question, onAnswer }) {
  const [reason, setReason] = useState("");
  const { call, agent, command, programs = [], env = {}, stdin } = question;
  const words = Array.isArray(command) ? command.join(" ") : typeof command === "string" ? command : JSON.stringify(command);
  const answers = ANSWERS.filter(([word]) => !question.answers || question.answers.includes(word));
  return html`<div class="question">
    <p><b>${visible(agent || "The agent")}</b> wants to run a command that needs an approval, in call ${call}:</p>
    <pre class="code" tabindex="0">${visible(words)}</pre>
    ${Object.entries(env).map(([name, value]) => html`<p key=${name} class="quiet">with <code>${visible(`${name}=${value}`)}</code></p>`)}
    ${stdin && html`<p class="quiet">with this standard input:</p><pre class="code" tabindex="0">${visible(stdin)}</pre>`}
    <div class="row-buttons">
      ${answers.map(([word, title]) => html`<button key=${word} class=${word === "once" ? "primary" : ""} title=${word === "session" ? `Allows ${visible(programs.join(", "))} until the session ends` : ""}
        onClick=${() => onAnswer(call, word, word === "refuse" ? reason : "")}>${title}</button>`)}
      <input aria-label="Reason for a refusal, for the agent" placeholder="Reason for a refusal" value=${reason} onInput=${(event) => setReason(event.target.value)} maxlength="1000" />
    </div>
  </div>`;
}
