//! Rules that deny commands.

use serde::{Deserialize, Serialize};

use crate::engine::error::ValueError;

/// A rule that denies a command with a danger anywhere in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DenyRule {
    /// Control characters other than newline and tab.
    ControlCharacters,
    /// Removal of `/`, a system directory such as `/etc`, the home directory or a directory above the workspace, or of
    /// all its entries: `rm -r`, `find -delete`, `find -exec rm`, `mv`, `rsync --delete`.
    RemoveRoot,
    /// A recursive change of modes or owners in one of these directories.
    ChangeRoot,
    /// `mkfs` and similar programs, with `mkswap`.
    MakeFilesystem,
    /// `dd` from `/dev/zero` without `count=`; with it, `dd` needs approval.
    DdFromZero,
    /// A write to a disk's device file, or to a file such as `/etc/passwd`, by a redirection or a program.
    WriteToDisk,
    /// Destruction of a volume (`zpool destroy`, `lvremove`), killing all processes (`kill -9 -1`), or a container with
    /// access to the whole machine (`docker run -v /:/host`, `--privileged --pid=host`).
    Ruin,
    /// A function that starts itself in the background or pipes into itself.
    ForkBomb,
    /// Execution of data just fetched from the network, as in `curl | sh`.
    RunFetched,
    /// A program, by its name.
    Program(String),
    /// A program with its first words, such as `git push`. A single word works like [`Program`](DenyRule::Program).
    Words(String),
    /// A pattern for a program's words, joined by single spaces. `*` matches any text.
    Pattern(String),
}

impl DenyRule {
    /// Returns the rule that denies commands by their first words.
    ///
    /// # Errors
    /// [`ValueError`]: the text has no words.
    pub fn words(text: &str) -> Result<Self, ValueError> {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.is_empty() {
            true => Err(ValueError::new("deny names no program; pass a program, perhaps with its first words")),
            false => Ok(Self::Words(words)),
        }
    }

    /// Returns the default rules.
    pub fn standard() -> Vec<Self> {
        vec![
            Self::ControlCharacters,
            Self::RemoveRoot,
            Self::ChangeRoot,
            Self::MakeFilesystem,
            Self::DdFromZero,
            Self::WriteToDisk,
            Self::Ruin,
            Self::ForkBomb,
            Self::RunFetched,
        ]
    }
}

/// Matches a text against a pattern. `*` matches any text.
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
