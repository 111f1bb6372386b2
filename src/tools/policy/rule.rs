//! Rules that deny commands.

use serde::{Deserialize, Serialize};

use crate::engine::error::ValueError;

/// Rule that denies a command, wherever in it the danger hides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DenyRule {
    /// Control characters other than newline and tab.
    ControlCharacters,
    /// Removal of `/`, a system directory such as `/etc`, the home directory or a directory above the workspace, or of all
    /// entries in one: `rm -r`, `find -delete`, `find -exec rm`, `mv`, `rsync --delete`.
    RemoveRoot,
    /// Change of the modes or owners of everything below one of these.
    ChangeRoot,
    /// `mkfs` and similar programs, with `mkswap`.
    MakeFilesystem,
    /// `dd` from `/dev/zero` without `count=`; with it, `dd` needs approval.
    DdFromZero,
    /// Write to a disk's device file, or to a file such as `/etc/passwd`, by a redirection or a program.
    WriteToDisk,
    /// Destruction of a volume (`zpool destroy`, `lvremove`), the end of all processes (`kill -9 -1`), or a container with
    /// the whole machine (`docker run -v /:/host`, `--privileged --pid=host`).
    Ruin,
    /// Function that starts itself in the background or pipes into itself.
    ForkBomb,
    /// Execution of data just fetched from the network, as in `curl | sh`.
    RunFetched,
    /// Program, by its name.
    Program(String),
    /// Program with its first words, such as `git push`; a program alone, as [`Program`](DenyRule::Program).
    Words(String),
    /// Pattern for a program's words, joined by single spaces; `*` stands for any text.
    Pattern(String),
}

impl DenyRule {
    /// Returns the rule that denies what begins with these words.
    ///
    /// # Errors
    /// [`ValueError`] for a text without words.
    pub fn words(text: &str) -> Result<Self, ValueError> {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.is_empty() {
            true => Err(ValueError::new("deny names no program; give one, or one with its first words")),
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

/// Matches a text against a pattern in which `*` stands for any text.
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
