// The page: signing in, the list of sessions, and one session.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { parse } from "./route.js";
import { Runs } from "./runs.js";
import { SessionList } from "./sessions.js";
import { SessionView } from "./session.js";
import { get, hasToken, isExport, signIn } from "./source.js";
import { dropToken, keepTyped } from "./token.js";

function SignIn({ why, onToken }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(why);
  const submit = async (event) => {
    event.preventDefault();
    keepTyped(token);
    try {
      await get("/v1/server");
      onToken();
    } catch (error) {
      dropToken();
      setProblem(error.status === 401 ? "Wrong token." : error.message);
    }
  };
  return html`<main class="sign-in">
    <form class="card" onSubmit=${submit}>
      <h1><span class="brand-mark" aria-hidden="true"></span>foldspace</h1>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      <label for="token">Token of the server</label>
      <input id="token" type="password" autocomplete="off" spellcheck="false" value=${token}
        onInput=${(event) => setToken(event.target.value)} autofocus required />
      <p class="hint"><code>foldspace ui</code> opens this page without asking: run it again.
        For <code>foldspace serve</code>, the token is in the file of ${html`<code>--token-file</code>`}, by default in ${html`<code>http.token</code>`} in the data directory.</p>
      <button class="primary" type="submit">Sign in</button>
    </form>
  </main>`;
}

function App({ why }) {
  const [signedIn, setSignedIn] = useState(hasToken());
  const [route, setRoute] = useState(parse(location.hash));
  useEffect(() => {
    const arrived = () => setRoute(parse(location.hash));
    const signedOut = () => {
      dropToken();
      setSignedIn(false);
    };
    addEventListener("popstate", arrived);
    addEventListener("signed-out", signedOut);
    return () => {
      removeEventListener("popstate", arrived);
      removeEventListener("signed-out", signedOut);
    };
  }, []);
  if (!signedIn) return html`<${SignIn} why=${why} onToken=${() => setSignedIn(true)} />`;
  if (route.runs) return html`<${Runs} key=${route.runs} sessions=${route.runs} />`;
  if (!route.session) return html`<${SessionList} />`;
  return html`<${SessionView} key=${route.session} route=${route} />`;
}

async function start() {
  let why = "";
  try {
    await signIn();
  } catch (error) {
    why = `The address was not accepted: ${error.message}. Run \`foldspace ui\` again, or sign in with the token.`;
  }
  if (isExport && !parse(location.hash).session) {
    const [document] = await get("/v1/sessions");
    history.replaceState(null, "", `#/s/${encodeURIComponent(document.name)}`);
  }
  const root = document.getElementById("app");
  root.replaceChildren();
  render(html`<${App} why=${why} />`, root);
}

start();
