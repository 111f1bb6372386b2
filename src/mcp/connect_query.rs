//! Options of an HTTP client, in the query of its URL.

use std::collections::BTreeSet;

use axum::extract::Query;
use http::Uri;

use super::{McpOptions, ToolGroup};
use crate::engine::commit::MAX_AGENT_BYTES;
use crate::engine::error::ValueError;

/// A client's options: `?session=NAME&agent=NAME&tools=GROUPS`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnectQuery {
    pub(super) session: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) groups: Option<BTreeSet<ToolGroup>>,
}

impl ConnectQuery {
    pub(super) fn read(uri: &Uri, options: &McpOptions) -> Result<Self, String> {
        let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
            return Err("the query can't be read".to_owned());
        };
        let mut asked = Self::default();
        for (name, value) in pairs {
            if value.is_empty() {
                return Err(format!("?{name:.40}= has no value; omit it, or give it a value"));
            }
            match name.as_str() {
                "session" => set(&mut asked.session, &name, fixed(&name, value, options.session.as_deref())?)?,
                "agent" if value.len() > MAX_AGENT_BYTES => {
                    return Err(format!("?agent= has {} bytes; the limit is {MAX_AGENT_BYTES}", value.len()));
                }
                "agent" => set(&mut asked.agent, &name, fixed(&name, value, options.agent.as_deref())?)?,
                "tools" => set(&mut asked.groups, &name, groups(&value, options)?)?,
                _ => return Err(format!("unknown parameter ?{name:.40}=; use session, agent and tools")),
            }
        }
        Ok(asked)
    }
}

fn set<T>(field: &mut Option<T>, name: &str, value: T) -> Result<(), String> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("?{name}= is given twice")),
    }
}

/// Refuses a value that differs from the server's fixed value.
fn fixed(name: &str, value: String, servers: Option<&str>) -> Result<String, String> {
    match servers {
        Some(servers) if servers != value => {
            Err(format!("this server was started with --{name} {servers}; omit ?{name}=, or start it without --{name}"))
        }
        _ => Ok(value),
    }
}

/// Parses groups as in `--tools`; `all` stands for the server's groups.
fn groups(value: &str, options: &McpOptions) -> Result<BTreeSet<ToolGroup>, String> {
    let mut groups = BTreeSet::new();
    for name in value.split(',') {
        if name == "all" {
            groups.extend(&options.groups);
            continue;
        }
        let group: ToolGroup = name.parse().map_err(|error: ValueError| error.to_string())?;
        if !options.groups.contains(&group) {
            let offered: Vec<_> = options.groups.iter().map(|group| group.name()).collect();
            return Err(format!("this server offers {}; start it with --tools {name} for more", offered.join(", ")));
        }
        groups.insert(group);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_query_is_read_or_refused() {
        let options = McpOptions { session: Some("team".to_owned()), ..McpOptions::default() };
        let read =
            |query: &str, options: &McpOptions| ConnectQuery::read(&format!("/mcp?{query}").parse().unwrap(), options);
        let asked = read("session=a%20b&agent=bob&tools=files,shell", &McpOptions::default()).unwrap();
        assert_eq!((asked.session.as_deref(), asked.agent.as_deref()), (Some("a b"), Some("bob")));
        assert_eq!(asked.groups.unwrap(), BTreeSet::from([ToolGroup::Files, ToolGroup::Shell]));
        assert_eq!(read("tools=all", &options).unwrap().groups.unwrap(), options.groups);
        for query in ["", "session=team", "agent=x"] {
            assert!(read(query, &options).is_ok(), "{query}");
        }
        for (query, why) in [
            ("session=lgp", "--session team"),
            ("sesion=x", "session, agent and tools"),
            ("session=", "no value"),
            ("session", "no value"),
            ("agent=", "no value"),
            ("session=team&session=team", "twice"),
            ("tools=sessions", "offers files, shell, python"),
            ("tools=flies", "did you mean files?"),
            (&format!("agent={}", "x".repeat(201)), "limit is 200"),
        ] {
            let refused = read(query, &options).unwrap_err();
            assert!(refused.contains(why), "{query}: {refused}");
        }
    }
}
