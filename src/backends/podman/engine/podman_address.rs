//! Podman's address: given, from the environment, or one of the usual places.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::address::{EngineAddress, Surroundings, usable};

const LIST_LIMIT: Duration = Duration::from_secs(10);
const LIST_MAX: u64 = 1 << 20;
const EXAMPLE: &str = "CONTAINER_HOST=unix:///run/podman/podman.sock";

/// Returns the output of `podman system connection list --format json`; `None` without the program or its output.
type ConnectionList<'a> = &'a dyn Fn() -> Result<Option<String>, String>;

#[derive(Deserialize)]
struct ListedConnection {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "URI")]
    uri: String,
    #[serde(rename = "Default", default)]
    default: bool,
}

pub(super) fn resolve(
    explicit: Option<&str>,
    around: &dyn Surroundings,
    list: ConnectionList<'_>,
) -> Result<EngineAddress, String> {
    if let Some(url) = explicit {
        return usable(url.to_owned(), "the configuration".to_owned(), EXAMPLE);
    }
    for name in ["PODMAN_BASE_URL", "PODMAN_URL", "CONTAINER_HOST"] {
        if let Some(url) = around.variable(name) {
            return usable(url, name.to_owned(), EXAMPLE);
        }
    }
    let wanted = around.variable("PODMAN_CONNECTION");
    // Without the list, the found engine may not be the intended one, so the error is reported with it.
    let (listed, fault) = match listed(list) {
        Ok(listed) => (listed, String::new()),
        Err(fault) => (Vec::new(), format!("; `podman system connection list` {fault}")),
    };
    if let Some(wanted) = wanted {
        let found = listed.into_iter().find(|one| one.name == wanted);
        let found = found.ok_or_else(|| {
            format!("PODMAN_CONNECTION names {wanted:?}, which `podman system connection list` does not have{fault}")
        })?;
        return usable(found.uri, format!("PODMAN_CONNECTION ({wanted})"), EXAMPLE);
    }
    if let Some(default) = listed.into_iter().find(|one| one.default) {
        return usable(default.uri, format!("the default connection ({})", default.name), EXAMPLE);
    }
    let user = around.variable("XDG_RUNTIME_DIR").map(|run| PathBuf::from(run).join("podman/podman.sock"));
    let places = [(user, "the user's socket"), (Some(PathBuf::from("/run/podman/podman.sock")), "the system's socket")];
    for (path, source) in places {
        if let Some(path) = path.filter(|path| around.has_socket(path)) {
            return usable(format!("unix://{}", path.display()), format!("{source}{fault}"), EXAMPLE);
        }
    }
    Err(format!(
        "no Podman engine was found; start one with `systemctl --user start podman.socket`, or \
         `podman system service --time=0 unix:///path/to.sock` and CONTAINER_HOST=unix:///path/to.sock{fault}"
    ))
}

fn listed(list: ConnectionList<'_>) -> Result<Vec<ListedConnection>, String> {
    let Some(text) = list()? else { return Ok(Vec::new()) };
    let listed = serde_json::from_str::<Option<Vec<ListedConnection>>>(&text);
    listed.map(Option::unwrap_or_default).map_err(|error| format!("has invalid output: {error}"))
}

/// Runs Podman, which knows its connections.
#[expect(clippy::disallowed_methods, reason = "Podman itself knows its connections")]
pub(super) fn connection_list() -> Result<Option<String>, String> {
    let mut command = Command::new("podman");
    command.args(["system", "connection", "list", "--format", "json"]);
    printed_within(command, LIST_LIMIT)
}

/// Returns the output of a successful program; `None` if it does not exist or prints nothing.
fn printed_within(mut command: Command, limit: Duration) -> Result<Option<String>, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("can't be run: {error}")),
    };
    let (give, printed) = std::sync::mpsc::channel();
    let stdout = child.stdout.take();
    let reading = std::thread::Builder::new().spawn(move || {
        let mut text = String::new();
        let read = stdout.map_or(Ok(0), |stdout| stdout.take(LIST_MAX).read_to_string(&mut text));
        // The caller may have stopped waiting.
        let _ = give.send(read.map(|_| text));
    });
    let printed = match reading {
        Ok(_) => printed.recv_timeout(limit).map_err(|_| format!("did not answer within {} s", limit.as_secs())),
        Err(error) => Err(format!("can't be read: {error}")),
    };
    if printed.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("can't be waited for: {error}"))?;
    let text = printed?.map_err(|error| format!("can't be read: {error}"))?;
    match status.success() {
        true => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        false => Err(format!("failed: {status}")),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests start programs")]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::{Command, Duration, EngineAddress, PathBuf, Surroundings, printed_within};

    #[derive(Default)]
    struct ConnectionSource {
        variables: BTreeMap<&'static str, &'static str>,
        list: Option<&'static str>,
        sockets: Vec<&'static str>,
    }

    impl Surroundings for ConnectionSource {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).map(|value| (*value).to_owned())
        }

        fn has_socket(&self, path: &Path) -> bool {
            self.sockets.iter().any(|socket| Path::new(socket) == path)
        }

        #[cfg(feature = "docker")]
        fn file(&self, _: &Path) -> Option<String> {
            None
        }

        #[cfg(feature = "docker")]
        fn entries(&self, _: &Path) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    fn resolve(explicit: Option<&str>, source: &ConnectionSource) -> Result<EngineAddress, String> {
        super::resolve(explicit, source, &|| match source.list {
            Some("hangs") => Err("did not answer within 10 s".to_owned()),
            list => Ok(list.map(str::to_owned)),
        })
    }

    const LIST: &str = r#"[{"Name":"a","URI":"unix:///a.sock","Default":false},
        {"Name":"b","URI":"unix:///b.sock","Default":true}]"#;

    #[test]
    fn connection_first_source_wins() {
        let mut told = ConnectionSource {
            list: Some(LIST),
            sockets: vec!["/u/podman/podman.sock"],
            ..ConnectionSource::default()
        };
        told.variables.insert("XDG_RUNTIME_DIR", "/u");
        let url = |explicit, told: &ConnectionSource| resolve(explicit, told).map(|found| found.url);
        assert_eq!(url(None, &told), Ok("unix:///b.sock".to_owned()));
        told.variables.insert("PODMAN_CONNECTION", "a");
        assert_eq!(url(None, &told), Ok("unix:///a.sock".to_owned()));
        told.variables.insert("CONTAINER_HOST", "tcp://127.0.0.1:1");
        assert_eq!(url(None, &told), Ok("tcp://127.0.0.1:1".to_owned()));
        told.variables.insert("PODMAN_URL", "unix:///url.sock");
        told.variables.insert("PODMAN_BASE_URL", "unix:///base.sock");
        assert_eq!(url(None, &told), Ok("unix:///base.sock".to_owned()));
        assert_eq!(url(Some("/said.sock"), &told), Ok("unix:///said.sock".to_owned()));
    }

    #[test]
    fn connection_user_socket_precedes_system_socket() {
        let mut told = ConnectionSource {
            sockets: vec!["/u/podman/podman.sock", "/run/podman/podman.sock"],
            ..ConnectionSource::default()
        };
        let url = |told: &ConnectionSource| resolve(None, told).map(|found| found.url);
        assert_eq!(url(&told), Ok("unix:///run/podman/podman.sock".to_owned()));
        told.variables.insert("XDG_RUNTIME_DIR", "/u");
        assert_eq!(url(&told), Ok("unix:///u/podman/podman.sock".to_owned()));
        assert!(url(&ConnectionSource::default()).unwrap_err().contains("podman.socket"));
    }

    #[test]
    fn connection_unusable_is_named() {
        let told = ConnectionSource {
            variables: BTreeMap::from([("PODMAN_CONNECTION", "c")]),
            list: Some(LIST),
            ..ConnectionSource::default()
        };
        assert!(resolve(None, &told).unwrap_err().contains("names \"c\""));
        assert!(
            resolve(Some("ssh://host/run"), &ConnectionSource::default())
                .unwrap_err()
                .contains("ssh connections are not supported")
        );
        assert!(resolve(Some("nonsense"), &ConnectionSource::default()).unwrap_err().contains("unix:///PATH"));
    }

    #[test]
    fn connection_list_malformed_names_fallback() {
        for (list, why) in [("{", "has invalid output"), ("hangs", "did not answer")] {
            let mut told = ConnectionSource { list: Some(list), ..ConnectionSource::default() };
            assert!(resolve(None, &told).unwrap_err().contains(why));
            told.sockets = vec!["/run/podman/podman.sock"];
            let found = resolve(None, &told).unwrap();
            assert!(found.url == "unix:///run/podman/podman.sock" && found.source.contains(why), "{found:?}");
            told.variables.insert("PODMAN_CONNECTION", "a");
            assert!(resolve(None, &told).unwrap_err().contains(why));
        }
        let empty = ConnectionSource {
            list: Some("null"),
            sockets: vec!["/run/podman/podman.sock"],
            ..ConnectionSource::default()
        };
        assert_eq!(resolve(None, &empty).unwrap().source, "the system's socket");
    }

    #[test]
    fn connection_list_program_times_out() {
        let sh = |text: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", text]);
            command
        };
        let long = Duration::from_secs(60);
        assert_eq!(printed_within(sh("echo [1]"), long), Ok(Some("[1]\n".to_owned())));
        assert_eq!(printed_within(sh("true"), long), Ok(None));
        assert_eq!(printed_within(Command::new("/no/such/program"), long), Ok(None));
        assert!(printed_within(sh("exit 3"), long).unwrap_err().contains("failed"));
        let hangs = printed_within(sh("exec sleep 1000"), Duration::from_millis(50));
        assert!(hangs.unwrap_err().contains("did not answer"));
    }
}
