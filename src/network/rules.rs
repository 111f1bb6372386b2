//! Rules for the hosts that commands may reach.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::address::{AddressBlock, is_public};

/// Rules for the hosts that commands may reach.
///
/// The most specific pattern that matches decides, and a denial wins over a permission that is as specific. A host that
/// no pattern matches is allowed if `allow` is empty. A name is decided by the patterns of names and by `*`, before it is
/// resolved; then denied blocks apply to its addresses. Private addresses, such as this machine's, need a permission by
/// their exact name, address or block.
///
/// ```
/// # use foldspace_network as foldspace;
/// use foldspace::network::NetworkRules;
/// let allow = ["*.example.com", "10.1.0.0/16"].map(|pattern| pattern.parse().unwrap()).to_vec();
/// let rules = NetworkRules { allow, deny: vec!["secret.example.com".parse().unwrap()], ..Default::default() };
/// let address = ["93.184.216.34".parse().unwrap()];
/// assert!(rules.check("api.example.com", 443, &address).is_ok());
/// assert!(rules.check("secret.example.com", 443, &address).is_err());
/// assert!(rules.check("other.example", 443, &address).is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkRules {
    /// Hosts that commands may reach; all public ones if it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<HostPattern>,
    /// Hosts that they may not reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<HostPattern>,
    /// True to refuse private addresses even if a pattern names them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub public_only: bool,
    /// Hosts to record HTTP and HTTPS with. HTTPS is decrypted with a certificate authority that the container trusts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub record_http: Vec<HostPattern>,
    /// Regular expressions of text to mask in recorded requests and responses, besides well-known secrets. If one has a group
    /// named `s`, only that is masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mask: Vec<String>,
}

/// A pattern of hosts: `example.com`, `*.example.com`, `93.184.216.34`, `10.0.0.0/8` or `*`, and a port after a colon
/// (`example.com:443`). An IPv6 address with a port is in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPattern {
    host: PatternHost,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PatternHost {
    Any,
    Name(String),
    /// The names below this one.
    Below(String),
    Block(AddressBlock),
}

/// The error of an invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid host pattern {0:?}; valid are example.com, *.example.com, 10.0.0.0/8 and *, with :443 for a single port"
)]
pub struct InvalidPattern(String);

/// The most bytes of a name in the domain name system.
const NAME_MAX: usize = 253;

impl FromStr for HostPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        Self::read(text).ok_or_else(|| InvalidPattern(text.chars().take(100).collect()))
    }
}

impl HostPattern {
    fn read(text: &str) -> Option<Self> {
        // An IPv6 address contains colons.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
            None => None,
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Some(block) = AddressBlock::read(bare) {
            return Some(Self { host: PatternHost::Block(block), port });
        }
        let name = |name: &str| is_name(name).then(|| name.trim_end_matches('.').to_ascii_lowercase());
        let host = match host {
            "*" => PatternHost::Any,
            _ => match host.strip_prefix("*.") {
                Some(below) => PatternHost::Below(name(below)?),
                None => PatternHost::Name(name(host)?),
            },
        };
        Some(Self { host, port })
    }

    /// Returns how specific the pattern is for a name; `None` if it does not match.
    fn of_name(&self, name: &str, port: u16) -> Option<u16> {
        self.with_port(
            port,
            match &self.host {
                PatternHost::Any => Some(0),
                // A longer name is more specific.
                PatternHost::Below(own) => is_below(name, own).then(|| 1 + length(own)),
                PatternHost::Name(own) => (name == own).then(|| 300 + length(own)),
                PatternHost::Block(_) => None,
            },
        )
    }

    /// Returns how specific the pattern is for an address; `None` if it does not match.
    fn of_address(&self, address: IpAddr, port: u16) -> Option<u16> {
        self.with_port(
            port,
            match &self.host {
                PatternHost::Any => Some(0),
                PatternHost::Block(block) => block.contains(address).then(|| 1 + u16::from(block.bits())),
                PatternHost::Below(_) | PatternHost::Name(_) => None,
            },
        )
    }

    fn with_port(&self, port: u16, specificity: Option<u16>) -> Option<u16> {
        let is_meant = self.port.is_none_or(|own| own == port);
        specificity.filter(|_| is_meant).map(|own| own * 2 + u16::from(self.port.is_some()))
    }

    fn is_any(&self) -> bool {
        self.host == PatternHost::Any
    }

    /// Returns true if it matches every host, or every address of version 4.
    pub fn is_everything(&self) -> bool {
        let is_all = matches!(&self.host, PatternHost::Block(block) if block.bits() == 0);
        self.port.is_none() && (self.is_any() || is_all)
    }

    /// Returns the port that the pattern is limited to.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

fn length(name: &str) -> u16 {
    u16::try_from(name.len()).unwrap_or(u16::MAX >> 2)
}

fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

fn is_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(inside) && !label.starts_with('-')
    };
    // A name that ends in digits is an address in another form.
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= NAME_MAX && name.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// The reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostRefusal {
    /// The name is malformed, or an address in an unusual form.
    #[error("invalid host name {0:?}")]
    Name(String),
    /// A pattern denies the host.
    #[error("{pattern} is denied")]
    Denied {
        /// The pattern.
        pattern: HostPattern,
    },
    /// No pattern allows the host.
    #[error("it is not among the allowed hosts")]
    NotAllowed,
    /// Its address is private.
    #[error("its address {0} is private")]
    Private(IpAddr),
}

impl NetworkRules {
    /// Returns true if requests to the host are recorded.
    pub fn records(&self, host: &str, port: u16) -> bool {
        let Ok(name) = canonical(host) else { return false };
        let is_meant = |pattern: &HostPattern| match name.parse() {
            Ok(address) => pattern.of_address(address, port),
            Err(_) => pattern.of_name(&name, port),
        };
        self.record_http.iter().any(|pattern| is_meant(pattern).is_some())
    }

    /// Returns the addresses of a host that may be connected to, at least one. An address instead of a name has itself
    /// as its only address.
    ///
    /// # Errors
    /// [`HostRefusal`] of the name, or of the first address.
    pub fn check(&self, host: &str, port: u16, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, HostRefusal> {
        self.check_name(host, port)?;
        let name = canonical(host)?;
        let name = Some(name.as_str()).filter(|name| name.parse::<IpAddr>().is_err());
        let (mut refusal, mut allowed) = (None, Vec::new());
        for address in addresses.iter().map(IpAddr::to_canonical) {
            match self.check_address(name, port, address) {
                Ok(()) => allowed.push(address),
                Err(reason) => drop(refusal.get_or_insert(reason)),
            }
        }
        match refusal {
            Some(reason) if allowed.is_empty() => Err(reason),
            _ => Ok(allowed),
        }
    }

    /// Refuses a host by its name, before it is resolved: a DNS query would reveal the name.
    ///
    /// # Errors
    /// [`HostRefusal`].
    pub fn check_name(&self, host: &str, port: u16) -> Result<(), HostRefusal> {
        let name = canonical(host)?;
        match name.parse::<IpAddr>() {
            Ok(_) => Ok(()),
            Err(_) => self.decide(|pattern| pattern.of_name(&name, port), true),
        }
    }

    /// Checks an address, of this name if there is one.
    fn check_address(&self, name: Option<&str>, port: u16, address: IpAddr) -> Result<(), HostRefusal> {
        // An allowed name allows its addresses, except denied blocks.
        let specificity =
            |pattern: &HostPattern| pattern.of_address(address, port).filter(|_| name.is_none() || !pattern.is_any());
        self.decide(specificity, name.is_none())?;
        let names_it = |pattern: &HostPattern| match &pattern.host {
            PatternHost::Name(own) => name == Some(own) && pattern.port.is_none_or(|own| own == port),
            // Wider blocks do not name private addresses on purpose.
            PatternHost::Block(block) => block.bits() >= 8 && pattern.of_address(address, port).is_some(),
            PatternHost::Any | PatternHost::Below(_) => false,
        };
        match is_public(address) || (!self.public_only && self.allow.iter().any(names_it)) {
            true => Ok(()),
            false => Err(HostRefusal::Private(address)),
        }
    }

    /// Decides by the most specific patterns. With `is_listed`, a host must be among the allowed ones if there are any.
    fn decide(&self, specificity: impl Fn(&HostPattern) -> Option<u16>, is_listed: bool) -> Result<(), HostRefusal> {
        let best = |patterns: &[HostPattern]| {
            let matching = patterns.iter().filter_map(|pattern| Some((specificity(pattern)?, pattern.clone())));
            matching.max_by_key(|(specificity, _)| *specificity)
        };
        let allowed = best(&self.allow).map(|(specificity, _)| specificity);
        match best(&self.deny) {
            Some((specificity, pattern)) if allowed.is_none_or(|allowed| allowed <= specificity) => {
                Err(HostRefusal::Denied { pattern })
            }
            _ if allowed.is_none() && is_listed && !self.allow.is_empty() => Err(HostRefusal::NotAllowed),
            _ => Ok(()),
        }
    }
}

/// Returns a host in lower case and without the final dot; an address in its usual form.
pub(crate) fn canonical(host: &str) -> Result<String, HostRefusal> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_canonical().to_string());
    }
    match is_name(host) {
        true => Ok(host.trim_end_matches('.').to_ascii_lowercase()),
        false => Err(HostRefusal::Name(host.chars().take(100).collect())),
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (PatternHost::Any, _) => write!(f, "*")?,
            (PatternHost::Name(name), _) => write!(f, "{name}")?,
            (PatternHost::Below(name), _) => write!(f, "*.{name}")?,
            (PatternHost::Block(block), Some(_)) if block.is_v6() => write!(f, "[{block}]")?,
            (PatternHost::Block(block), _) => write!(f, "{block}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for HostPattern {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HostPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> NetworkRules {
        let read = |patterns: &[&str]| patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        NetworkRules { allow: read(allow), deny: read(deny), ..Default::default() }
    }

    /// The reason why a host at an address is refused; empty if it is not.
    fn why(rules: &NetworkRules, host: &str, address: &str) -> String {
        let address = address.parse().unwrap();
        rules.check(host, 443, &[address]).map_or_else(|reason| reason.to_string(), |_| String::new())
    }

    const PUBLIC: &str = "93.184.216.34";

    #[test]
    fn pattern_is_read_and_written_in_one_form() {
        for (text, form) in [
            ("Example.COM.", "example.com"),
            ("*.example.com:8443", "*.example.com:8443"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("1.1.1.1", "1.1.1.1"),
            ("1.1.1.1:53", "1.1.1.1:53"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("*", "*"),
            ("*:443", "*:443"),
            ("_dmarc.example.com", "_dmarc.example.com"),
        ] {
            let pattern: HostPattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), form, "{text}");
            assert_eq!(form.parse(), Ok(pattern), "{form}");
        }
        for wrong in [
            "",
            "a..b",
            "*.*",
            "*example.com",
            "a b",
            "example.com:0",
            "example.com:99999",
            "http://a.b",
            "1.2.3",
            "0x7f.1",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "a/24",
            "-a.com",
            &"a".repeat(300),
            "*.",
            "[::1",
            "::1]:4",
            "127.1",
            "2130706433",
        ] {
            assert!(wrong.parse::<HostPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn most_specific_pattern_decides() {
        let all = rules(&[], &[]);
        assert_eq!(why(&all, "example.com", PUBLIC), "");
        let list = rules(&["*.example.com", "other.example"], &["secret.example.com"]);
        for allowed in ["a.example.com", "A.B.Example.com.", "other.example"] {
            assert_eq!(why(&list, allowed, PUBLIC), "", "{allowed}");
        }
        assert_eq!(why(&list, "example.com", PUBLIC), "it is not among the allowed hosts");
        assert_eq!(why(&list, "badexample.com", PUBLIC), "it is not among the allowed hosts");
        assert_eq!(why(&list, "secret.example.com", PUBLIC), "secret.example.com is denied");
        let except = rules(&["good.example.com"], &["*"]);
        assert_eq!(
            (why(&except, "good.example.com", PUBLIC), why(&except, "bad.example.com", PUBLIC)),
            (String::new(), "* is denied".to_owned())
        );
        let same = rules(&["example.com"], &["example.com"]);
        assert_eq!(why(&same, "example.com", PUBLIC), "example.com is denied");
        let port = rules(&["*:443"], &[]);
        assert!(port.check("example.com", 80, &[PUBLIC.parse().unwrap()]).is_err());
        assert_eq!(why(&port, "example.com", PUBLIC), "");
        // A block denies names, too.
        let block = rules(&[], &["93.184.0.0/16"]);
        assert_eq!(why(&block, "example.com", PUBLIC), "93.184.0.0/16 is denied");
        assert_eq!(why(&block, "example.com", "1.1.1.1"), "");
    }

    #[test]
    fn private_addresses_need_a_permission_by_name() {
        let private = [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::127.0.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "240.0.0.1",
        ];
        for address in private {
            for rules in
                [rules(&[], &[]), rules(&["*"], &[]), rules(&["*.example.com"], &[]), rules(&["0.0.0.0/0"], &[])]
            {
                assert_ne!(why(&rules, "a.example.com", address), "", "{address} {rules:?}");
            }
            assert_eq!(why(&rules(&["a.example.com"], &[]), "a.example.com", address), "", "{address}");
        }
        assert_eq!(why(&rules(&["*.example.com", "10.0.0.0/8"], &[]), "a.example.com", "10.1.1.1"), "");
        // A block allows no names: each of them would have to be resolved.
        let block = rules(&["10.0.0.0/8"], &[]);
        assert_eq!(why(&block, "a.example.com", "10.1.1.1"), "it is not among the allowed hosts");
        assert_eq!(
            (why(&block, "10.1.1.1", "10.1.1.1"), why(&block, "11.1.1.1", "11.1.1.1")),
            (String::new(), "it is not among the allowed hosts".to_owned())
        );
        let named = rules(&["127.0.0.1:443"], &[]);
        assert_eq!(why(&named, "127.0.0.1", "127.0.0.1"), "");
        assert_eq!(
            why(&NetworkRules { public_only: true, ..named }, "127.0.0.1", "127.0.0.1"),
            "its address 127.0.0.1 is private"
        );
        // One private address among public ones is left out.
        let both = [PUBLIC.parse().unwrap(), "127.0.0.1".parse().unwrap()];
        assert_eq!(rules(&[], &[]).check("example.com", 443, &both).unwrap(), [both[0]]);
    }

    #[test]
    fn unusual_forms_of_addresses_are_no_names() {
        for host in ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "a b", "", "."] {
            assert!(canonical(host).is_err() || canonical(host) == Ok("0x7f000001".to_owned()), "{host}");
        }
        assert_eq!(canonical("[::ffff:127.0.0.1]").unwrap(), "127.0.0.1");
    }
}
