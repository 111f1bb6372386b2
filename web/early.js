// Requests a session's first documents while the other modules are still loading.

const token = location.protocol === "file:" ? null : sessionStorage.getItem("foldspace-token") ?? localStorage.getItem("foldspace-token");
const name = location.hash.match(/^#\/s\/([^/?@]+)/)?.[1];

globalThis.foldspaceEarly = new Map();
if (token && name) {
  document.documentElement.classList.add("opening");
  const session = `/v1/sessions/${name}`;
  const ask = (address) => {
    const answer = fetch(address, { headers: { authorization: `Bearer ${token}`, accept: "application/json" }, cache: "no-store" });
    answer.catch(() => {});
    globalThis.foldspaceEarly.set(address, answer);
  };
  if (!/[?&](tool|agent|failed|changed|path|text)=/.test(location.hash)) ask(`${session}/timeline?buckets=1000`);
  ask(session);
  ask("/v1/server");
}
