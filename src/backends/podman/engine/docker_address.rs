//! Docker's address: given, from the environment or the current context, or one of the usual places.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::address::{EngineAddress, Surroundings, usable};

const EXAMPLE: &str = "DOCKER_HOST=unix:///var/run/docker.sock";
/// The name of the context without an endpoint.
const DEFAULT: &str = "default";

pub(super) fn resolve(explicit: Option<&str>, around: &dyn Surroundings) -> Result<EngineAddress, String> {
    if let Some(url) = explicit {
        return usable(url.to_owned(), "the configuration".to_owned(), EXAMPLE);
    }
    if let Some(url) = around.variable("DOCKER_HOST") {
        return usable(url, "DOCKER_HOST".to_owned(), EXAMPLE);
    }
    let home = around.variable("HOME").map(PathBuf::from);
    let own = around.variable("DOCKER_CONFIG").map(PathBuf::from);
    let own = own.or_else(|| home.as_ref().map(|home| home.join(".docker")));
    let (context, source) = match around.variable("DOCKER_CONTEXT") {
        Some(context) => (Some(context), "DOCKER_CONTEXT"),
        None => (own.as_ref().and_then(|own| current_context(own, around)), "the current context"),
    };
    if let (Some(context), Some(own)) = (context.filter(|context| context != DEFAULT), &own) {
        let source = format!("{source} ({context})");
        return match endpoint(own, &context, around) {
            Some(url) => usable(url, source, EXAMPLE),
            None => Err(format!(
                "{source} has no address in {}; see `docker context ls`, or set {EXAMPLE}",
                own.join("contexts/meta").display()
            )),
        };
    }
    let run = around.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = [
        (run.map(|run| run.join("docker.sock")), "the user's socket"),
        (home.map(|home| home.join(".docker/run/docker.sock")), "Docker Desktop's socket"),
        (Some(PathBuf::from("/var/run/docker.sock")), "the system's socket"),
    ];
    for (path, source) in places {
        if let Some(path) = path.filter(|path| around.has_socket(path)) {
            return usable(format!("unix://{}", path.display()), source.to_owned(), EXAMPLE);
        }
    }
    Err(format!("no Docker engine was found; start one with `systemctl start docker`, or set {EXAMPLE}"))
}

fn current_context(own: &Path, around: &dyn Surroundings) -> Option<String> {
    let config: Value = serde_json::from_str(&around.file(&own.join("config.json"))?).ok()?;
    config["currentContext"].as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the address of a context. Each context has a directory, and its name is in a file there.
fn endpoint(own: &Path, context: &str, around: &dyn Surroundings) -> Option<String> {
    let contexts = own.join("contexts/meta");
    around.entries(&contexts).iter().find_map(|context_dir| {
        let meta = around.file(&context_dir.join("meta.json"))?;
        let meta: Value = serde_json::from_str(&meta).ok().filter(|meta: &Value| meta["Name"] == *context)?;
        meta["Endpoints"]["docker"]["Host"].as_str().map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Default)]
    struct DockerHome {
        variables: BTreeMap<&'static str, &'static str>,
        files: BTreeMap<&'static str, &'static str>,
        sockets: Vec<&'static str>,
    }

    impl Surroundings for DockerHome {
        fn variable(&self, name: &str) -> Option<String> {
            self.variables.get(name).map(|value| (*value).to_owned())
        }

        fn has_socket(&self, path: &Path) -> bool {
            self.sockets.iter().any(|socket| Path::new(socket) == path)
        }

        fn file(&self, path: &Path) -> Option<String> {
            self.files.get(path.to_str()?).map(|text| (*text).to_owned())
        }

        fn entries(&self, directory: &Path) -> Vec<PathBuf> {
            let below = self.files.keys().filter_map(|path| Path::new(path).strip_prefix(directory).ok());
            below.filter_map(|path| Some(directory.join(path.components().next()?))).collect()
        }
    }

    fn at_home() -> DockerHome {
        let meta = |name: &str, host: &str| {
            format!(r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#).leak()
                as &str
        };
        DockerHome {
            variables: BTreeMap::from([("HOME", "/h"), ("XDG_RUNTIME_DIR", "/u")]),
            files: BTreeMap::from([
                ("/h/.docker/config.json", r#"{"auths":{},"currentContext":"work"}"#),
                ("/h/.docker/contexts/meta/aa/meta.json", meta("other", "unix:///other.sock")),
                ("/h/.docker/contexts/meta/bb/meta.json", meta("work", "unix:///work.sock")),
            ]),
            sockets: vec!["/u/docker.sock", "/var/run/docker.sock"],
        }
    }

    #[test]
    fn docker_address_first_source_wins() {
        let mut around = at_home();
        let url = |explicit, around: &DockerHome| resolve(explicit, around).map(|found| found.url);
        assert_eq!(url(None, &around), Ok("unix:///work.sock".to_owned()));
        around.variables.insert("DOCKER_CONTEXT", "other");
        assert_eq!(url(None, &around), Ok("unix:///other.sock".to_owned()));
        around.variables.insert("DOCKER_HOST", "tcp://127.0.0.1:2375");
        assert_eq!(url(None, &around), Ok("tcp://127.0.0.1:2375".to_owned()));
        assert_eq!(url(Some("/said.sock"), &around), Ok("unix:///said.sock".to_owned()));
        around.variables.insert("DOCKER_HOST", "ssh://host");
        assert!(url(None, &around).unwrap_err().contains("ssh connections are not supported"));
    }

    #[test]
    fn docker_address_without_context_is_a_usual_socket() {
        let mut around = at_home();
        around.variables.insert("DOCKER_CONTEXT", "default");
        let found = |around: &DockerHome| resolve(None, around).map(|found| (found.url, found.source));
        assert_eq!(found(&around), Ok(("unix:///u/docker.sock".to_owned(), "the user's socket".to_owned())));
        around.variables.remove("XDG_RUNTIME_DIR");
        assert_eq!(found(&around).unwrap().1, "the system's socket");
        around.sockets.clear();
        assert!(found(&around).unwrap_err().contains("systemctl start docker"));
    }

    #[test]
    fn docker_address_of_unknown_context_is_refused() {
        let mut around = at_home();
        around.variables.insert("DOCKER_CONTEXT", "gone");
        let refused = resolve(None, &around).unwrap_err();
        assert!(refused.contains("DOCKER_CONTEXT (gone)") && refused.contains("docker context ls"), "{refused}");
        around.variables.insert("DOCKER_CONFIG", "/elsewhere");
        around.variables.remove("DOCKER_CONTEXT");
        assert_eq!(resolve(None, &around).unwrap().source, "the user's socket", "there is no context");
    }
}
