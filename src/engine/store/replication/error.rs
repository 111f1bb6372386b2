//! Errors of copies in object storage.

use std::path::PathBuf;
use std::sync::Arc;

use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};

use super::manifest::CopyWriter;
use crate::engine::store::{StoreError, StoreOwner};
use crate::engine::{Advice, Diagnostic, ErrorKind, Timestamp};

/// The result of an operation on a copy.
pub(super) type CopyResult<T> = Result<T, ReplicationError>;

/// An error of a copy in object storage.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplicationError {
    /// The address of the copy can't be used.
    #[error("can't use {url} for a copy: {what}")]
    Address {
        /// Address as given.
        url: String,
        /// Problem.
        what: String,
    },
    /// The object storage failed.
    #[error("can't {action} {name} in {url}: {}", cause(source))]
    Storage {
        /// The attempted action.
        action: &'static str,
        /// Name of the object.
        name: String,
        /// Address of the copy.
        url: String,
        /// The storage's error.
        source: Arc<object_store::Error>,
    },
    /// Another process copies this data directory there.
    #[error("{owner} already copies to {url}")]
    Running {
        /// Address of the copy.
        url: String,
        /// The other process.
        owner: Box<StoreOwner>,
    },
    /// A process for another copy of the store writes there.
    #[error("the copy in {url} is written by {writer}, last at {written}")]
    Refused {
        /// Address of the copy.
        url: String,
        /// Process that writes there.
        writer: CopyWriter,
        /// Time of its last manifest.
        written: Timestamp,
    },
    /// The address has a copy of another store.
    #[error("{url} has a copy of another store: journal {journal}, not {own}")]
    OtherStore {
        /// Address of the copy.
        url: String,
        /// Identity of the copied journal.
        journal: String,
        /// Identity of this store's journal.
        own: String,
    },
    /// The manifest was replaced or removed.
    #[error("the manifest in {url} has changed since it was last read")]
    Conflict {
        /// Address of the copy.
        url: String,
    },
    /// The store ends before its copy does.
    #[error("the store ends in segment {own}, before its copy in {url}; the copy was left unchanged")]
    Behind {
        /// Address of the copy.
        url: String,
        /// Last segment of the store.
        own: u32,
    },
    /// The journal was rewritten repeatedly while it was copied.
    #[error("the journal was rewritten while it was copied")]
    Rewritten,
    /// The address does not hold a copy.
    #[error("no copy found in {0}")]
    NoCopy(String),
    /// Objects of the copy are missing or damaged.
    #[error("the copy in {url} is damaged: {}", problems.join("; "))]
    Damaged {
        /// Address of the copy.
        url: String,
        /// The problem of each affected object.
        problems: Vec<String>,
    },
    /// The directory already has a store.
    #[error("{} already has a store", .0.display())]
    Occupied(PathBuf),
    /// All commits of the copy are later than the requested time.
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
    /// Returns true if a retry can't help, because the user has to decide.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Address { .. } | Self::Refused { .. } | Self::OtherStore { .. })
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if matches!(**source, NotFound { .. }))
    }

    /// Returns true if a retry within seconds would get the same answer.
    pub(super) fn is_decided(&self) -> bool {
        let is_decided = |source: &object_store::Error| {
            // Listing a missing bucket fails with a generic error.
            matches!(source, NotFound { .. } | PermissionDenied { .. } | Unauthenticated { .. })
                || cause(source).contains("NoSuchBucket")
        };
        matches!(self, Self::Storage { source, .. } if is_decided(source))
    }
}

/// Returns the root cause of a failure, as stable text: the outer errors contain durations.
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

    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Storage { url, .. } if !url.starts_with("s3://") => return None,
            Self::Address { url, .. } if !url.starts_with("s3://") => {
                Advice::text("use s3://BUCKET/PREFIX or file:///DIRECTORY")
            }
            Self::Address { .. } | Self::Storage { .. } => Advice::text(
                "AWS_ENDPOINT, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY configure S3, \
                 SSL_CERT_FILE names trusted certificates",
            ),
            Self::Refused { .. } => Advice::TakeOverCopy,
            Self::OtherStore { .. } => Advice::text("use a separate address for each store"),
            Self::Behind { .. } => Advice::RestoreFromCopy,
            Self::Damaged { .. } => Advice::ReplaceCopy,
            Self::Occupied(_) => Advice::UseOtherDirectory,
            Self::Store(error) => return error.advice(),
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
