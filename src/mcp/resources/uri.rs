//! The URIs of resources: `foldspace://SESSION/files/PATH?at=POSITION` and others.

use std::fmt;

use axum::extract::Query;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;
use crate::hub::operations::OperationError;
use crate::mcp::names::shown;
use crate::view::Position;

/// The scheme of every URI.
const SCHEME: &str = "foldspace://";

/// The templates of URIs.
pub(super) const FILES: &str = "foldspace://{session}/files/{+path}{?at}";
pub(super) const SLICES: &str = "foldspace://{session}/state/{slice}{?at}";
pub(super) const LOG: &str = "foldspace://{session}/log{?from,limit}";
pub(super) const MOUNT: &str = "foldspace://{session}/mount{?at}";

/// The encoded characters in a segment of a URI, and in a path, which keeps its slashes.
const IN_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_PART.remove(b'/');

/// Default and maximum number of events.
const EVENTS: usize = 100;
const EVENTS_MAX: usize = 1000;
/// Limit for a URI in bytes. Paths are shorter, even when encoded.
const ADDRESS_MAX: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) struct ResourceUri {
    pub(in crate::mcp) session: String,
    pub(in crate::mcp) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum What {
    File { path: EntryPath, at: Option<Position> },
    Slice { name: String, at: Option<Position> },
    Log { from: Option<Position>, limit: usize },
    Mount { at: Option<Position> },
}

impl ResourceUri {
    pub(in crate::mcp) fn parse(uri: &str) -> Result<Self, OperationError> {
        let cut = shown(uri, 300);
        let wrong =
            |what: &str| OperationError::not_found(format!("{cut}: {what}; use {FILES}, {SLICES}, {LOG} or {MOUNT}"));
        if uri.len() > ADDRESS_MAX {
            return Err(wrong(&format!("it has {} bytes; the limit is {ADDRESS_MAX}", uri.len())));
        }
        let rest = uri.strip_prefix(SCHEME).ok_or_else(|| wrong("unknown scheme"))?;
        let (place, given) = rest.split_once('?').unwrap_or((rest, ""));
        let (session, below) = place.split_once('/').ok_or_else(|| wrong("it names only a session"))?;
        let session = decoded(session).filter(|name| !name.is_empty()).ok_or_else(|| wrong("it names no session"))?;
        let what = match below.split_once('/').unwrap_or((below, "")) {
            ("files", path) => {
                let path = decoded_bytes(path).ok_or_else(|| wrong("its path is malformed"))?;
                let path = EntryPath::from_bytes(&path).map_err(|error| wrong(&error.to_string()))?;
                What::File { path, at: query::<StateQuery>(given)?.at }
            }
            ("state", name) => {
                let name = decoded(name).filter(|name| !name.is_empty()).ok_or_else(|| wrong("it names no slice"))?;
                What::Slice { name, at: query::<StateQuery>(given)?.at }
            }
            ("log", "") => {
                let LogQuery { from, limit } = query(given)?;
                let limit = limit.unwrap_or(EVENTS);
                if !(1..=EVENTS_MAX).contains(&limit) {
                    return Err(OperationError::not_found(format!(
                        "limit is {limit}; it must be from 1 to {EVENTS_MAX}"
                    )));
                }
                What::Log { from, limit }
            }
            ("mount", "") => What::Mount { at: query::<StateQuery>(given)?.at },
            _ => return Err(wrong("unknown kind of resource")),
        };
        Ok(Self { session, what })
    }

    /// Returns true if its position is fixed in the past, so that its contents never change.
    pub(in crate::mcp) fn is_settled(&self, now: Timestamp) -> bool {
        let at = match &self.what {
            What::File { at, .. } | What::Slice { at, .. } => at.as_ref(),
            What::Log { .. } | What::Mount { .. } => None,
        };
        match at {
            Some(Position::Exact(_) | Position::Before(_)) => true,
            Some(Position::Moment(time)) => *time < now,
            // The number of a running call stands for the present.
            Some(Position::Seq(_) | Position::Back(_) | Position::Ago(_) | Position::Tag(_)) | None => false,
        }
    }
}

impl fmt::Display for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/", encoded(self.session.as_bytes(), false))?;
        let at = |at: &Option<Position>| at.as_ref().map_or(String::new(), |at| format!("?at={at}"));
        match &self.what {
            What::File { path, at: position } => {
                write!(f, "files/{}{}", encoded(path.as_bytes(), true), at(position))
            }
            What::Slice { name, at: position } => {
                write!(f, "state/{}{}", encoded(name.as_bytes(), false), at(position))
            }
            What::Log { from, limit } => {
                write!(f, "log")?;
                from.as_ref().map_or(Ok(()), |from| write!(f, "?from={from}&limit={limit}"))
            }
            What::Mount { at: position } => write!(f, "mount{}", at(position)),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    at: Option<Position>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    from: Option<Position>,
    limit: Option<usize>,
}

fn query<T: DeserializeOwned>(text: &str) -> Result<T, OperationError> {
    // A template may leave values empty. A plus does not mean a space here.
    let given: Vec<_> = text.split('&').filter(|pair| !pair.ends_with('=')).collect();
    let uri = format!("/?{}", given.join("&").replace('+', "%2B")).parse::<Uri>();
    let uri = uri.map_err(|error| OperationError::not_found(format!("invalid query: {error}")))?;
    let Query(read) =
        Query::try_from_uri(&uri).map_err(|error| OperationError::not_found(shown(&error.body_text(), 300)))?;
    Ok(read)
}

fn encoded(bytes: &[u8], is_path: bool) -> String {
    percent_encode(bytes, if is_path { IN_PATH } else { IN_PART }).to_string()
}

fn decoded(text: &str) -> Option<String> {
    String::from_utf8(decoded_bytes(text)?).ok()
}

/// Decodes to bytes, since a path may not be UTF-8.
fn decoded_bytes(text: &str) -> Option<Vec<u8>> {
    let is_byte =
        |after: &str| after.as_bytes().first_chunk::<2>().is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    text.split('%').skip(1).all(is_byte).then(|| percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_uri_round_trips() {
        let uris = [
            "foldspace://demo/files/src/main.rs",
            "foldspace://demo/files/a%20b%25%3F.txt?at=12",
            "foldspace://demo/state/Usage?at=-5",
            "foldspace://demo/state/Usage?at=2025-01-31T12:00:00.000Z",
            "foldspace://demo/state/Usage?at=600000ms",
            "foldspace://demo/log",
            "foldspace://demo/mount",
            "foldspace://demo/mount?at=12",
            "foldspace://demo/log?from=3&limit=10",
            "foldspace://demo/files/",
            "foldspace://demo/files/%FF",
        ];
        for uri in uris {
            assert_eq!(ResourceUri::parse(uri).unwrap().to_string(), uri);
        }
        let decoded = ResourceUri::parse("foldspace://demo/files/%C3%A9/x?at=@7").unwrap();
        assert_eq!(decoded.to_string(), "foldspace://demo/files/%C3%A9/x?at=@7");
        let is_settled = |at: &str| {
            ResourceUri::parse(&format!("foldspace://demo/files/x?at={at}"))
                .unwrap()
                .is_settled(Timestamp(1_700_000_000_000))
        };
        let settled = ["@7", "before:7", "7", "-1", "10m"].map(is_settled);
        assert_eq!(settled, [true, true, false, false, false]);
        assert_eq!(["2023-11-14T00:00:00Z", "2023-11-15T00:00:00Z"].map(is_settled), [true, false]);
    }

    #[test]
    fn resource_uri_malformed_is_refused() {
        let long = format!("foldspace://demo/nothing/{}", "x/".repeat(40_000));
        let deep = format!("foldspace://demo/files/{}", "x/".repeat(9_000));
        let uris = [
            "",
            "file:///etc/passwd",
            "foldspace://",
            "foldspace://demo",
            "foldspace:///files/a",
            "foldspace://demo/x/y",
            "foldspace://demo/files/../a",
            "foldspace://demo/files/%2e%2e/a",
            "foldspace://demo/files/a%",
            "foldspace://%ff/log",
            "foldspace://demo/files/%00",
            "foldspace://demo/files/a?at=x",
            "foldspace://demo/files/a?at=--1",
            "foldspace://demo/files/a?at=99999999999999999999",
            "foldspace://demo/log?limit=0",
            "foldspace://demo/log?limit=1001",
            "foldspace://demo/log/x",
            "foldspace://demo/mount/x",
            "foldspace://demo/mount?from=1",
            "foldspace://demo/state/",
            "foldspace://demo/files/a?at",
            "foldspace://demo/files/a?At=5",
            "foldspace://demo/files/a?position=5",
            "foldspace://demo/files/a?at=5&at=6",
            "foldspace://demo/state/Usage?limit=5",
            "foldspace://demo/log?at=5",
            "foldspace://demo/log?from=5&limit=1&from=5",
            &long,
            &deep,
        ];
        for uri in uris {
            let error = ResourceUri::parse(uri).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.len() < 2000), "{uri}");
        }
    }
}
