//! Lists what a policy denies.

use serde::{Deserialize, Serialize};

/// Names what a policy denies, wherever in a command it hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DenyRule {
    /// Control characters other than newline and tab.
    ControlCharacters,
    /// Removing `/`, the home directory or what is above the workspace, or everything in one: `rm -r`, `find -delete`,
    /// `find -exec rm`.
    RemoveRoot,
    /// Changing the modes or owners of all that is below one of these.
    ChangeRoot,
    /// `mkfs` and the like, `mkswap` among them.
    MakeFilesystem,
    /// `dd` from `/dev/zero`.
    DdFromZero,
    /// Writing to a disk's device file, by a redirection or a program.
    WriteToDisk,
    /// A function that starts itself in the background or pipes into itself.
    ForkBomb,
    /// Running what was just fetched from the network, as in `curl | sh`.
    RunFetched,
    /// A program by its name.
    Program(String),
    /// A program's words, joined by single spaces, against a pattern in which `*` stands for any text.
    Pattern(String),
}

impl DenyRule {
    /// Returns the rules that a policy begins with.
    pub fn standard() -> Vec<Self> {
        vec![
            Self::ControlCharacters,
            Self::RemoveRoot,
            Self::ChangeRoot,
            Self::MakeFilesystem,
            Self::DdFromZero,
            Self::WriteToDisk,
            Self::ForkBomb,
            Self::RunFetched,
        ]
    }
}

/// Tells whether a text matches a pattern in which `*` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
