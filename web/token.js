// The token of this page. A code's token is for all tabs of this origin: it is void when the owner ends. A token that a
// person typed may be valid for long: it is never written to disk, and open tabs hand it to new ones.

const KEY = "foldspace-token";
const PAUSE = 250;
const isFile = location.protocol === "file:";
const tabs = isFile ? null : new BroadcastChannel(KEY);

tabs?.addEventListener("message", ({ data }) => {
  const typed = sessionStorage.getItem(KEY);
  if (data === "wanted" && typed) tabs.postMessage({ token: typed });
});

export function token() {
  return isFile ? null : sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

export function keepTyped(text) {
  sessionStorage.setItem(KEY, text.trim());
}

export function keepOfOwner(text) {
  sessionStorage.removeItem(KEY);
  localStorage.setItem(KEY, text);
}

export function dropToken() {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
}

// Returns true if `foldspace ui` signed this page in.
export function isOfOwner() {
  return !isFile && sessionStorage.getItem(KEY) === null && localStorage.getItem(KEY) !== null;
}

// Takes the token of another tab, if one answers soon.
export function askOtherTabs() {
  return new Promise((done) => {
    const heard = ({ data }) => {
      if (!data?.token) return;
      keepTyped(data.token);
      finish();
    };
    const finish = () => {
      tabs.removeEventListener("message", heard);
      done();
    };
    tabs.addEventListener("message", heard);
    tabs.postMessage("wanted");
    setTimeout(finish, PAUSE);
  });
}
