//! Differences between files as patches that `git apply` and `patch -p1` understand.

use std::time::Duration;

use foldspace::{Change, Digest, Entry, Node, Session};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::exit::Failure;
use super::output::{BAD, BOLD, GOOD, NOTED, Out, PLAIN};

/// How long one file may take to compare; after that the difference is coarser.
const PATIENCE: Duration = Duration::from_secs(5);

/// The mode of a directory.
const DIRECTORY: &str = "040000";

/// What became of one path, as a patch.
pub(crate) struct Patch {
    pub(super) path: String,
    /// `added`, `removed` or `changed`.
    pub(super) change: &'static str,
    /// Modes, before the lines.
    head: Vec<String>,
    /// The lines that differ with those around them, each with its sign; a hunk's title has `@`.
    lines: Vec<(char, String)>,
    /// Whether contents differ that are no text.
    pub(super) binary: bool,
    pub(super) added: u64,
    pub(super) removed: u64,
}

/// What stands on one side of a change.
#[derive(Default)]
struct Side {
    /// Empty where nothing is.
    mode: &'static str,
    text: String,
    /// The contents where they are no text.
    binary: Option<Digest>,
}

impl Side {
    fn read(session: &Session, entry: Option<&Entry>) -> Result<Self, Failure> {
        let (mode, bytes) = match entry.map(|entry| &entry.node) {
            None => return Ok(Self::default()),
            Some(Node::Directory) => return Ok(Self { mode: DIRECTORY, ..Self::default() }),
            Some(Node::Symlink { target }) => ("120000", target.clone()),
            Some(Node::Special { special }) => return Ok(Self { mode: special.name(), ..Self::default() }),
            Some(
                Node::File { content, text: false, executable, .. }
                | Node::File { content, incomplete: true, executable, .. },
            ) => {
                return Ok(Self { mode: mode_of(*executable), text: String::new(), binary: Some(*content) });
            }
            Some(Node::File { content, executable, .. }) => (mode_of(*executable), session.content(content)?.to_vec()),
        };
        let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok(Self { mode, text, binary: None })
    }

    fn name(&self, prefix: &str, path: &str) -> String {
        if self.mode.is_empty() { "/dev/null".to_owned() } else { format!("{prefix}/{path}") }
    }
}

fn mode_of(executable: bool) -> &'static str {
    if executable { "100755" } else { "100644" }
}

/// What git knows nothing of: directories and special files. It skips such lines between patches.
fn bare_of(mode: &str, path: &str) -> Option<String> {
    match mode {
        DIRECTORY => Some(format!("directory {path}/")),
        mode if mode.starts_with(|c: char| c.is_ascii_digit()) => None,
        "" => None,
        special => Some(format!("{special} {path}")),
    }
}

/// The patches of a change: two when something is another kind of entry afterwards.
pub(crate) fn patches(session: &Session, change: &Change) -> Result<Vec<Patch>, Failure> {
    patches_between(session, session, change)
}

/// The same of a change from one session's files to another's.
pub(super) fn patches_between(from: &Session, to: &Session, change: &Change) -> Result<Vec<Patch>, Failure> {
    let (before, after) = match change {
        Change::Added { after, .. } => (None, Some(after)),
        Change::Removed { before, .. } => (Some(before), None),
        Change::Changed { before, after, .. } => (Some(before), Some(after)),
    };
    let path = change.path().to_string();
    let (old, new) = (Side::read(from, before)?, Side::read(to, after)?);
    let other_kind = before.zip(after).is_some_and(|(b, a)| kind_of(b) != kind_of(a));
    Ok(match other_kind {
        false => vec![Patch::between(path, &old, &new)],
        true => {
            vec![Patch::between(path.clone(), &old, &Side::default()), Patch::between(path, &Side::default(), &new)]
        }
    })
}

fn kind_of(entry: &Entry) -> std::mem::Discriminant<Node> {
    std::mem::discriminant(&entry.node)
}

impl Patch {
    /// What differs between two texts of that name.
    pub(super) fn of_texts(name: &str, old: &str, new: &str) -> Self {
        let side = |text: &str| Side { mode: mode_of(false), text: text.to_owned(), binary: None };
        Self::between(name.to_owned(), &side(old), &side(new))
    }

    fn between(path: String, old: &Side, new: &Side) -> Self {
        let bare = |change, word: &str, shown: String| (change, vec![format!("{word} {shown}")]);
        let (old_bare, new_bare) = (bare_of(old.mode, &path), bare_of(new.mode, &path));
        let is_bare = old_bare.is_some() || new_bare.is_some();
        let (change, modes) = match (old.mode, new.mode) {
            ("", _) if let Some(shown) = new_bare => bare("added", "new", shown),
            (_, "") if let Some(shown) = old_bare => bare("removed", "deleted", shown),
            ("", mode) => ("added", vec![format!("new file mode {mode}")]),
            (mode, "") => ("removed", vec![format!("deleted file mode {mode}")]),
            (a, b) if a == b => ("changed", Vec::new()),
            (a, b) => ("changed", vec![format!("old mode {a}"), format!("new mode {b}")]),
        };
        let mut head = Vec::new();
        if !is_bare {
            head.push(format!("diff --git a/{path} b/{path}"));
        }
        head.extend(modes);
        let binary = old.binary != new.binary;
        let mut patch = Self { path, change, head, lines: Vec::new(), binary, added: 0, removed: 0 };
        let (from, to) = (old.name("a", &patch.path), new.name("b", &patch.path));
        if binary {
            patch.head.push(format!("Binary files {from} and {to} differ"));
        } else if old.text != new.text {
            patch.head.extend([format!("--- {from}"), format!("+++ {to}")]);
            patch.compare(&old.text, &new.text);
        }
        patch
    }

    fn compare(&mut self, old: &str, new: &str) {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
        let diff = TextDiff::configure().newline_terminated(true).timeout(PATIENCE).diff_slices(&old, &new);
        for hunk in diff.unified_diff().iter_hunks() {
            self.lines.push(('@', hunk.header().to_string()));
            for change in hunk.iter_changes() {
                let sign = match change.tag() {
                    ChangeTag::Equal => ' ',
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                };
                self.removed += u64::from(sign == '-');
                self.added += u64::from(sign == '+');
                let text = change.value();
                self.lines.push((sign, text.strip_suffix('\n').unwrap_or(text).to_owned()));
                if !text.ends_with('\n') {
                    self.lines.push(('\\', " No newline at end of file".to_owned()));
                }
            }
        }
    }

    /// The lines before the hunks, and those of the hunks with their signs.
    pub(crate) fn parts(&self) -> (&[String], &[(char, String)]) {
        (&self.head, &self.lines)
    }

    pub(super) fn show(&self, out: &mut Out) -> Result<(), Failure> {
        for line in &self.head {
            out.line(out.paint(BOLD, line))?;
        }
        for (sign, text) in &self.lines {
            let text = out.content(text);
            let painted = match sign {
                '@' => out.paint(NOTED, &text),
                '-' => out.paint(BAD, format!("-{text}")),
                '+' => out.paint(GOOD, format!("+{text}")),
                _ => out.paint(PLAIN, format!("{sign}{text}")),
            };
            out.line(painted)?;
        }
        Ok(())
    }

    /// The whole patch as it would be shown without colour.
    pub(super) fn text(&self) -> String {
        let mut text: String = self.head.iter().map(|line| format!("{line}\n")).collect();
        for (sign, line) in &self.lines {
            match sign {
                '@' => text.push_str(&format!("{line}\n")),
                sign => text.push_str(&format!("{sign}{line}\n")),
            }
        }
        text
    }

    /// The lines added and removed, in a few characters.
    pub(super) fn counts(&self, out: &Out) -> String {
        match (self.binary, self.added, self.removed) {
            (true, ..) => "binary".to_owned(),
            (false, 0, 0) => {
                self.head.iter().filter(|line| !line.starts_with("diff ")).cloned().collect::<Vec<_>>().join(", ")
            }
            (false, added, removed) => {
                format!("{} {}", out.paint(GOOD, format!("+{added}")), out.paint(BAD, format!("-{removed}")))
            }
        }
    }
}

/// A change as JSON with its patch.
pub(super) fn as_json(session: &Session, change: &Change) -> Result<Value, Failure> {
    as_json_between(session, session, change)
}

/// The same of a change from one session's files to another's.
pub(super) fn as_json_between(from: &Session, to: &Session, change: &Change) -> Result<Value, Failure> {
    let patches = patches_between(from, to, change)?;
    let sum = |pick: fn(&Patch) -> u64| patches.iter().map(pick).sum::<u64>();
    let mut value = serde_json::to_value(change).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("binary".to_owned(), json!(patches.iter().any(|patch| patch.binary)));
        fields.insert("lines_added".to_owned(), json!(sum(|patch| patch.added)));
        fields.insert("lines_removed".to_owned(), json!(sum(|patch| patch.removed)));
        fields.insert("patch".to_owned(), json!(patches.iter().map(Patch::text).collect::<String>()));
    }
    Ok(value)
}
