//! Where the engine listens: what was said, then what the environment says, then the usual places.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where an engine listens, and how that was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Such as `unix:///run/podman/podman.sock`.
    pub(crate) url: String,
    /// Who said so.
    pub(crate) source: String,
}

impl Connection {
    /// The user whose process listens; none when that can't be known, as over a network.
    pub(crate) fn user(&self) -> Option<u32> {
        let path = self.url.strip_prefix("unix://")?;
        let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        Some(peer.uid.as_raw())
    }
}

/// What is asked of the surroundings, so that a test can answer.
pub(crate) trait Surroundings {
    /// A variable of the environment; none when it is not set, or empty.
    fn variable(&self, name: &str) -> Option<String>;
    /// What `podman system connection list --format json` prints; none when it can't be run.
    fn connection_list(&self) -> Option<String>;
    /// Whether a socket is there.
    fn has_socket(&self, path: &Path) -> bool;
}

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "URI")]
    uri: String,
    #[serde(rename = "Default", default)]
    default: bool,
}

/// Finds out where the engine listens.
///
/// # Errors
/// A text for a person, when nobody says so or what is said can't be used.
pub(crate) fn resolve(explicit: Option<&str>, around: &dyn Surroundings) -> Result<Connection, String> {
    if let Some(url) = explicit {
        return usable(url.to_owned(), "the configuration".to_owned());
    }
    for name in ["PODMAN_BASE_URL", "PODMAN_URL", "CONTAINER_HOST"] {
        if let Some(url) = around.variable(name) {
            return usable(url, name.to_owned());
        }
    }
    let wanted = around.variable("PODMAN_CONNECTION");
    let listed = around.connection_list().map(|text| serde_json::from_str::<Vec<Listed>>(&text).unwrap_or_default());
    let listed = listed.unwrap_or_default();
    if let Some(wanted) = wanted {
        let found = listed.into_iter().find(|one| one.name == wanted);
        let found = found.ok_or_else(|| {
            format!("PODMAN_CONNECTION names {wanted:?}, which `podman system connection list` does not have")
        })?;
        return usable(found.uri, format!("PODMAN_CONNECTION ({wanted})"));
    }
    if let Some(default) = listed.into_iter().find(|one| one.default) {
        return usable(default.uri, format!("the default connection ({})", default.name));
    }
    let user = around.variable("XDG_RUNTIME_DIR").map(|run| PathBuf::from(run).join("podman/podman.sock"));
    let places = [(user, "the user's socket"), (Some(PathBuf::from("/run/podman/podman.sock")), "the system's socket")];
    for (path, source) in places {
        if let Some(path) = path.filter(|path| around.has_socket(path)) {
            return usable(format!("unix://{}", path.display()), source.to_owned());
        }
    }
    Err("no Podman engine was found; start one with `systemctl --user start podman.socket`, or \
         `podman system service --time=0 unix:///path/to.sock` and CONTAINER_HOST=unix:///path/to.sock"
        .to_owned())
}

/// The connection, when the engine's library can use it.
fn usable(url: String, source: String) -> Result<Connection, String> {
    match url.split_once("://") {
        Some(("unix" | "tcp" | "http", rest)) if !rest.is_empty() => Ok(Connection { url, source }),
        None if url.starts_with('/') => Ok(Connection { url: format!("unix://{url}"), source }),
        Some(("ssh", _)) => Err(format!(
            "{source} names {url}; connections over ssh can't be used. Forward the engine's socket, such as \
             `ssh -nNT -L /tmp/podman.sock:/run/podman/podman.sock HOST`, and set CONTAINER_HOST=unix:///tmp/podman.sock"
        )),
        _ => Err(format!("{source} names {url:?}; it must be unix:///PATH, tcp://HOST:PORT or http://HOST:PORT")),
    }
}

/// This process's surroundings.
pub(crate) struct Here;

impl Surroundings for Here {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    #[expect(clippy::disallowed_methods, reason = "Podman itself knows its connections")]
    fn connection_list(&self) -> Option<String> {
        let mut command = std::process::Command::new("podman");
        command.args(["system", "connection", "list", "--format", "json"]).stdin(std::process::Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok()
    }

    fn has_socket(&self, path: &Path) -> bool {
        use std::os::unix::fs::FileTypeExt;
        path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct Told {
        variables: BTreeMap<&'static str, &'static str>,
        list: Option<&'static str>,
        sockets: Vec<&'static str>,
    }

    impl Surroundings for Told {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).map(|value| (*value).to_owned())
        }

        fn connection_list(&self) -> Option<String> {
            self.list.map(str::to_owned)
        }

        fn has_socket(&self, path: &Path) -> bool {
            self.sockets.iter().any(|socket| Path::new(socket) == path)
        }
    }

    const LIST: &str = r#"[{"Name":"a","URI":"unix:///a.sock","Default":false},
        {"Name":"b","URI":"unix:///b.sock","Default":true}]"#;

    #[test]
    fn what_comes_first_wins() {
        let mut told = Told { list: Some(LIST), sockets: vec!["/u/podman/podman.sock"], ..Told::default() };
        told.variables.insert("XDG_RUNTIME_DIR", "/u");
        let url = |explicit, told: &Told| resolve(explicit, told).map(|found| found.url);
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
    fn sockets_come_last_the_user_s_before_the_system_s() {
        let mut told = Told { sockets: vec!["/u/podman/podman.sock", "/run/podman/podman.sock"], ..Told::default() };
        let url = |told: &Told| resolve(None, told).map(|found| found.url);
        assert_eq!(url(&told), Ok("unix:///run/podman/podman.sock".to_owned()));
        told.variables.insert("XDG_RUNTIME_DIR", "/u");
        assert_eq!(url(&told), Ok("unix:///u/podman/podman.sock".to_owned()));
        assert!(url(&Told::default()).unwrap_err().contains("podman.socket"));
    }

    #[test]
    fn what_can_t_be_used_is_said() {
        let told =
            Told { variables: BTreeMap::from([("PODMAN_CONNECTION", "c")]), list: Some(LIST), ..Told::default() };
        assert!(resolve(None, &told).unwrap_err().contains("names \"c\""));
        assert!(resolve(Some("ssh://host/run"), &Told::default()).unwrap_err().contains("ssh -nNT"));
        assert!(resolve(Some("nonsense"), &Told::default()).unwrap_err().contains("unix:///PATH"));
        let garbage = Told { list: Some("{"), ..Told::default() };
        assert!(resolve(None, &garbage).is_err());
    }
}
