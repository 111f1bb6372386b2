//! The files of a state.

use foldspace::event::Node;
use foldspace::reducers::Entry;
use foldspace::tools::PathGlob;
use foldspace::{EntryPath, Session, State, VirtualFileSystem};

use super::{Cell, DIM, DIRECTORY, Failure, GOOD, NOTED, ODD, Out, did_you_mean, text};

/// Reads a path of the workspace, also in the form that commands use: below /workspace.
pub(super) fn path(text: &str) -> Result<EntryPath, Failure> {
    let below = text.strip_prefix("/workspace").filter(|below| below.is_empty() || below.starts_with('/'));
    Ok(EntryPath::lookup(below.unwrap_or(text))?)
}

pub(super) fn entry<'a>(files: &'a VirtualFileSystem, path: &EntryPath, state: &State) -> Result<&'a Entry, Failure> {
    files.get(path).ok_or_else(|| {
        let meant = meant(files, path);
        Failure::missing(format!("{} does not exist at position {}", path.rooted(), state.seq())).with_hint(format!(
            "{meant}`foldspace ls {} -R` lists the files; --at selects another position",
            state.session().short()
        ))
    })
}

/// Returns the start of a hint if an existing path resembles `path`, else an empty string.
pub(super) fn meant(files: &VirtualFileSystem, path: &EntryPath) -> String {
    let known: Vec<String> = files.iter().map(|(path, _)| path.to_string()).collect();
    did_you_mean(&path.to_string(), known.iter().map(String::as_str))
}

pub(super) fn contents(session: &Session, path: &EntryPath, entry: &Entry) -> Result<bytes::Bytes, Failure> {
    match &entry.node {
        Node::File { size, incomplete: true, .. } => {
            let what =
                format!("the contents of {} were not stored: {} were over a budget", path.rooted(), text::size(*size));
            Err(Failure::missing(what)
                .with_hint("`foldspace ls --stat` shows its metadata; --keep-file-bytes raises the budget"))
        }
        Node::File { content, .. } => Ok(session.content(content)?),
        Node::Special { special } => {
            Err(Failure::missing(format!("{} is a {}; it has no contents", path.rooted(), special.name())))
        }
        Node::Directory { .. } => Err(Failure::missing(format!("{} is a directory", path.rooted()))),
        Node::Symlink { target } => {
            let target = text::one_line(&String::from_utf8_lossy(target), 200);
            Err(Failure::missing(format!("{} is a symbolic link", path.rooted()))
                .with_hint(format!("it points to {target}")))
        }
    }
}

pub(super) fn kind(entry: &Entry) -> &'static str {
    match entry.node {
        Node::File { mode, .. } if mode.is_executable() => "exec",
        Node::File { .. } => "file",
        Node::Symlink { .. } => "link",
        Node::Directory { .. } => "dir",
        Node::Special { special } => special.name(),
    }
}

pub(super) fn shown(out: &Out, name: &str, entry: &Entry) -> String {
    match &entry.node {
        Node::Directory { .. } => format!("{}/", out.paint(DIRECTORY, name)),
        Node::Symlink { target } => {
            format!("{} -> {}", out.paint(NOTED, name), text::one_line(&String::from_utf8_lossy(target), 200))
        }
        Node::Special { .. } => out.paint(ODD, name),
        Node::File { mode, .. } if mode.is_executable() => out.paint(GOOD, name),
        Node::File { .. } => name.to_owned(),
    }
}

pub(super) fn cells(out: &Out, name: &str, entry: &Entry) -> [Cell; 5] {
    let size = if entry.is_directory() { String::new() } else { text::size(entry.size()) };
    [
        Cell::left(kind(entry)).styled(DIM),
        Cell::right(format!("v{}", entry.version)),
        Cell::right(size),
        Cell::left(text::moment(entry.updated_at)),
        Cell::left(shown(out, name, entry)),
    ]
}

pub(super) fn glob(pattern: &str) -> Result<PathGlob, Failure> {
    PathGlob::new(pattern).map_err(|error| Failure::pattern("glob", error.kind()))
}
