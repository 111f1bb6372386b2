//! The network of a container's commands.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::network::NetworkRules;

/// The network of a container's commands. In JSON it is `false`, `true` for the recorded network without rules, an object
/// with its rules (`{"allow": ["*.example.com"], "deny": []}`), or `"engine"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ContainerNetwork {
    /// No network.
    #[default]
    None,
    /// Connections through a proxy of this process, which applies the rules and records each connection.
    Recorded(NetworkRules),
    /// The engine's own network. Nothing of it is recorded, and it reaches whatever this machine reaches.
    Engine,
}

impl ContainerNetwork {
    /// Returns true unless there is no network.
    pub fn is_on(&self) -> bool {
        *self != Self::None
    }

    /// Returns the rules of a recorded network.
    pub fn rules(&self) -> Option<&NetworkRules> {
        match self {
            Self::Recorded(rules) => Some(rules),
            Self::None | Self::Engine => None,
        }
    }

    /// Returns true if requests to some hosts are recorded.
    pub(crate) fn records_http(&self) -> bool {
        self.rules().is_some_and(|rules| !rules.record_http.is_empty())
    }

    /// Returns the same network without rules.
    pub(crate) fn without_rules(&self) -> Self {
        match self {
            Self::Recorded(_) => Self::Recorded(NetworkRules::default()),
            other => other.clone(),
        }
    }
}

/// The word for the engine's network.
const ENGINE: &str = "engine";

impl fmt::Display for ContainerNetwork {
    /// Describes what commands reach, after "commands".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Recorded(rules) = self else {
            return f.write_str(match self {
                Self::Engine => "have the engine's network, which is not recorded",
                _ => "have no network",
            });
        };
        let list = |patterns: &[crate::network::HostPattern]| {
            patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        match rules.allow.is_empty() {
            true => f.write_str("reach public hosts by a recorded proxy")?,
            false => write!(f, "reach {} by a recorded proxy", list(&rules.allow))?,
        }
        if rules.deny.is_empty() { Ok(()) } else { write!(f, ", except {}", list(&rules.deny)) }
    }
}

impl Serialize for ContainerNetwork {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_bool(false),
            Self::Recorded(rules) if *rules == NetworkRules::default() => serializer.serialize_bool(true),
            Self::Recorded(rules) => rules.serialize(serializer),
            Self::Engine => serializer.serialize_str(ENGINE),
        }
    }
}

impl<'de> Deserialize<'de> for ContainerNetwork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NetworkVisitor)
    }
}

struct NetworkVisitor;

impl<'de> Visitor<'de> for NetworkVisitor {
    type Value = ContainerNetwork;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "true, false, {ENGINE:?} or {{\"allow\": [..], \"deny\": [..]}}")
    }

    fn visit_bool<E: serde::de::Error>(self, is_on: bool) -> Result<ContainerNetwork, E> {
        Ok(if is_on { ContainerNetwork::Recorded(NetworkRules::default()) } else { ContainerNetwork::None })
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<ContainerNetwork, E> {
        match word == ENGINE {
            true => Ok(ContainerNetwork::Engine),
            false => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ContainerNetwork, A::Error> {
        NetworkRules::deserialize(MapAccessDeserializer::new(map)).map(ContainerNetwork::Recorded)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn network_has_short_forms() {
        for (form, words) in [
            (json!(false), "have no network"),
            (json!(true), "reach public hosts by a recorded proxy"),
            (json!("engine"), "have the engine's network, which is not recorded"),
            (
                json!({ "allow": ["*.example.com:443"], "deny": ["10.0.0.0/8", "a.example.com"] }),
                "reach *.example.com:443 by a recorded proxy, except 10.0.0.0/8, a.example.com",
            ),
        ] {
            let network: ContainerNetwork = serde_json::from_value(form.clone()).unwrap();
            assert_eq!((serde_json::to_value(&network).unwrap(), network.to_string()), (form, words.to_owned()));
        }
        for (wrong, why) in [
            (json!("yes"), "invalid value: string \"yes\", expected true, false, \"engine\" or {"),
            (json!(1), "invalid type: integer `1`, expected true"),
            (json!({ "allow": ["a b"] }), "invalid host pattern \"a b\""),
            (json!({ "alow": [] }), "unknown field `alow`"),
        ] {
            let error = serde_json::from_value::<ContainerNetwork>(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
