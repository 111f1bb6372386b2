//! Errors of copies in object storage.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};

use super::manifest::CopyWriter;
use crate::engine::store::{StoreError, StoreOwner};
use crate::engine::{Diagnostic, ErrorKind, Timestamp};

/// Result of work on a copy.
pub(super) type CopyResult<T> = Result<T, ReplicationError>;

/// Error of a copy in object storage.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicationError {
    /// The address of the copy can't be used.
    #[error("{url} can't be used for a copy: {what}")]
    Address {
        /// Address as given.
        url: String,
        /// Problem.
        what: String,
    },
    /// The object storage failed.
    #[error("can't {action} {name} in {url}: {}", cause(source))]
    Storage {
        /// Attempted action.
        action: &'static str,
        /// Name of the object.
        name: String,
        /// Address of the copy.
        url: String,
        /// Error of the storage.
        source: Arc<object_store::Error>,
    },
    /// Another process copies this data directory there.
    #[error("{owner} copies to {url} already")]
    Running {
        /// Address of the copy.
        url: String,
        /// That process.
        owner: Box<StoreOwner>,
    },
    /// Another process, of another copy of the store, writes there.
    #[error("{url} is written by {writer}, last at {written}")]
    Refused {
        /// Address of the copy.
        url: String,
        /// Process that writes there.
        writer: CopyWriter,
        /// Time of its last manifest.
        written: Timestamp,
    },
    /// A copy of another store is there.
    #[error("{url} has the copy of another store, journal {journal}; this one is journal {own}")]
    OtherStore {
        /// Address of the copy.
        url: String,
        /// Identity of the journal there.
        journal: String,
        /// Identity of the journal here.
        own: String,
    },
    /// The manifest was replaced by another one.
    #[error("the manifest in {url} is not the one that was written last")]
    Conflict {
        /// Address of the copy.
        url: String,
    },
    /// The store ends before its copy does.
    #[error("the store ends in segment {own}, and its copy in {url} goes on; nothing of the copy is replaced")]
    Behind {
        /// Address of the copy.
        url: String,
        /// Last segment of the store.
        own: u32,
    },
    /// The journal was rewritten again and again while it was copied.
    #[error("the journal was rewritten while it was copied")]
    Rewritten,
    /// There is no copy at the address.
    #[error("there is no copy in {0}")]
    NoCopy(String),
    /// Objects of the copy are missing or damaged.
    #[error("the copy in {url} is damaged: {}", problems.join("; "))]
    Damaged {
        /// Address of the copy.
        url: String,
        /// Objects and what is wrong with each.
        problems: Vec<String>,
    },
    /// The directory has a store already.
    #[error("{} has a store already", .0.display())]
    Occupied(PathBuf),
    /// The copy has no commit that is old enough.
    #[error("the copy in {url} has no commit at or before {at}")]
    TooEarly {
        /// Address of the copy.
        url: String,
        /// Requested time.
        at: Timestamp,
    },
    /// The journal could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReplicationError {
    /// Returns true if another try can't help: somebody has to decide.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Address { .. } | Self::Refused { .. } | Self::OtherStore { .. })
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if matches!(**source, NotFound { .. }))
    }

    /// Returns true if the storage would answer the same in a few seconds.
    pub(super) fn is_decided(&self) -> bool {
        let is_decided =
            |source: &_| matches!(source, NotFound { .. } | PermissionDenied { .. } | Unauthenticated { .. });
        matches!(self, Self::Storage { source, .. } if is_decided(&**source))
    }
}

/// Returns the first reason of a failure, in words that are the same each time: the rest tells durations.
pub(super) fn cause(error: &object_store::Error) -> String {
    let mut first: &dyn std::error::Error = error;
    while let Some(source) = first.source() {
        first = source;
    }
    let said = first.to_string();
    let said = said.strip_prefix("Server returned non-2xx status code: ").unwrap_or(&said);
    let part = |name: &str| {
        let (_, rest) = said.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(part, _)| part)
    };
    match (said.split_once(": "), part("Code")) {
        (Some((status, _)), Some(code)) => format!("{status}: {code}: {}", part("Message").unwrap_or_default()),
        _ => said.trim_end_matches(": ").to_owned(),
    }
}

impl Diagnostic for ReplicationError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Address { .. } | Self::Occupied(_) => ErrorKind::Invalid,
            Self::Storage { .. } => ErrorKind::Io,
            Self::Running { .. } => ErrorKind::Busy,
            Self::Refused { .. } | Self::OtherStore { .. } | Self::Behind { .. } => ErrorKind::Refused,
            Self::Conflict { .. } | Self::Rewritten => ErrorKind::Conflict,
            Self::NoCopy(_) | Self::TooEarly { .. } => ErrorKind::NotFound,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Store(error) => error.kind(),
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Storage { url, .. } if !url.starts_with("s3://") => return None,
            Self::Address { url, .. } if !url.starts_with("s3://") => {
                "give s3://BUCKET/PREFIX, or file:///DIRECTORY".to_owned()
            }
            Self::Address { .. } | Self::Storage { .. } => {
                "AWS_ENDPOINT, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say how S3 is reached, \
                 SSL_CERT_FILE which certificates are trusted"
                    .to_owned()
            }
            Self::Refused { .. } => "end that process, then replace its copy: \
                                     `foldspace replicate --once --take-over --to URL`"
                .to_owned(),
            Self::OtherStore { .. } => "give each store an address of its own".to_owned(),
            Self::Behind { .. } => "`foldspace fsck` tells whether events are lost; \
                                    `foldspace restore` makes a store of the copy"
                .to_owned(),
            Self::Damaged { .. } => {
                "where its store still is: delete the copy, then run `foldspace replicate` again".to_owned()
            }
            Self::Occupied(_) => "give a directory without one: --data DIR".to_owned(),
            Self::Store(error) => return error.hint(),
            _ => return None,
        })
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}
