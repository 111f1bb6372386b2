//! Addresses of stores on NATS: `nats://HOST[:PORT][,HOST...]?stream=NAME`.

use std::fmt;
use std::str::FromStr;

/// Maximum bytes of a stream's name.
const NAME_MAX: usize = 64;

/// The address of a store on a NATS cluster: `nats://HOST[:PORT][,HOST...][?stream=NAME][&replicas=N][&contents=URL]`,
/// with `tls://` for encrypted connections, and `USER:PASSWORD@` before a host.
///
/// The stream is `foldspace` by default, with three replicas. File contents are on the cluster, or, with the feature
/// `replicate`, in object storage: `contents=s3://BUCKET/PREFIX`.
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::store::NatsAddress;
/// let address: NatsAddress = "nats://10.0.0.1,10.0.0.2:4223?stream=agents".parse()?;
/// assert_eq!((address.stream(), address.replicas()), ("agents", 3));
/// assert!("nats://?stream=a".parse::<NatsAddress>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsAddress {
    text: String,
    servers: Vec<String>,
    stream: String,
    replicas: usize,
    contents: Option<String>,
}

/// The reason why a store's address is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid store address {text:?}: {reason}; expected nats://HOST[:PORT][,HOST...]?stream=NAME")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl NatsAddress {
    /// Returns the name of the stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns the number of servers that store each message.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// Returns the address of the object storage for file contents. `None` if they are on the cluster.
    pub fn contents(&self) -> Option<&str> {
        self.contents.as_deref()
    }

    pub(super) fn servers(&self) -> &[String] {
        &self.servers
    }
}

impl FromStr for NatsAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |reason| AddressError { text: shown(text), reason };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        if !matches!(scheme, "nats" | "tls") {
            return Err(wrong("its scheme is neither nats nor tls"));
        }
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.split(',').any(str::is_empty) {
            return Err(wrong("a host is missing"));
        }
        let servers = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        let (mut stream, mut replicas, mut contents) = ("foldspace".to_owned(), 3, None);
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("stream", name)) => stream = name.to_owned(),
                Some(("replicas", count)) => replicas = count.parse().map_err(|_| wrong("replicas is not a number"))?,
                Some(("contents", url)) if url.starts_with("s3://") => contents = Some(url.to_owned()),
                Some(("contents", _)) => return Err(wrong("contents must be s3://BUCKET/PREFIX")),
                _ => return Err(wrong("it has a setting other than stream, replicas and contents")),
            }
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if stream.is_empty() || stream.len() > NAME_MAX || !stream.bytes().all(is_plain) {
            return Err(wrong("the stream's name must be 1 to 64 letters, digits, - or _"));
        }
        if !matches!(replicas, 1 | 3 | 5) {
            return Err(wrong("replicas must be 1, 3 or 5"));
        }
        Ok(Self { text: shown(text), servers, stream, replicas, contents })
    }
}

/// Returns an address without users and passwords.
fn shown(text: &str) -> String {
    let parts = text.split(',').map(|part| match (part.find("://").map_or(0, |at| at + 3), part.rfind('@')) {
        (from, Some(at)) if from <= at => format!("{}{}", &part[..from], &part[at + 1..]),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Writes the address without users and passwords.
impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_with_all_parts_is_read() {
        let address: NatsAddress = "tls://me:secret@a.example:4,b?stream=S_1&replicas=5".parse().unwrap();
        assert_eq!(address.servers, ["tls://me:secret@a.example:4", "tls://b"]);
        assert_eq!((address.stream(), address.replicas(), address.contents()), ("S_1", 5, None));
        assert_eq!(address.to_string(), "tls://a.example:4,b?stream=S_1&replicas=5");
    }

    #[test]
    fn address_that_is_wrong_is_refused_with_the_reason() {
        for (text, reason) in [
            ("localhost", "no scheme"),
            ("http://a", "neither nats nor tls"),
            ("nats://a,,b", "a host is missing"),
            ("nats://a?stream=a.b", "letters, digits"),
            ("nats://a?stream=", "letters, digits"),
            ("nats://a?replicas=2", "1, 3 or 5"),
            ("nats://a?replicas=x", "not a number"),
            ("nats://a?colour=red", "other than"),
            ("nats://a?contents=file:///x", "contents must be s3://"),
        ] {
            let error = text.parse::<NatsAddress>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(!"ftp://me:secret@a".parse::<NatsAddress>().unwrap_err().to_string().contains("secret"));
    }
}
