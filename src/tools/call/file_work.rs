//! File changes that a program makes directly. Each is a call, recorded like a tool's.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::context::ToolContext;
use super::error::ToolError;
use super::filesystem::Filesystem;
use super::tool::{Answering, ErasedTool, Tool, ToolAnswer, ToolDescription};
use super::tool_call::{ToolCall, ToolOutcome};
use super::tool_runner::ToolRunner;
use crate::engine::event::{Node, WriteMode};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::reducers::can_be_made;
use crate::tools::builtin::files::{RemoveTool, missing};
use crate::tools::words::counted;

/// Time limit of a change: enough to write 1 GiB to a slow disk.
const LIMIT: Duration = Duration::from_secs(600);

/// A change of a session's files by a program rather than its agent. Paths are relative to the workspace root and may
/// begin with `/workspace`. Missing parent directories are created.
///
/// ```
/// # use foldspace_tools as foldspace;
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// use foldspace::tools::{FileWork, ToolRunner, Tools};
/// use foldspace::{NewSession, Registry, Sessions, WorkspaceSpec};
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let workspace = WorkspaceSpec::Memory.open(session.id(), directory.path())?;
/// let runner = ToolRunner::new(session, Tools::standard(), workspace)?;
/// let logo = FileWork::Write { path: "logo.png".into(), bytes: vec![0x89, 0x50].into(), executable: None, create: true };
/// assert!(runner.change_files(logo).await?.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub enum FileWork {
    /// Writes a file, following links.
    Write {
        /// The file.
        path: String,
        /// Its whole contents.
        bytes: Bytes,
        /// Its executable bit; by default unchanged, and off for a new file.
        executable: Option<bool>,
        /// True to fail if the path exists.
        create: bool,
    },
    /// Writes several files, following links: all of them or none.
    WriteAll {
        /// The files, with their whole contents.
        files: Vec<(String, Bytes)>,
    },
    /// Removes an entry; does not follow a link.
    Remove {
        /// The entry.
        path: String,
        /// True to remove a directory with its entries; false to fail if it has any.
        recursive: bool,
    },
    /// Moves an entry, with everything below it.
    Move {
        /// The entry.
        from: String,
        /// Its new path.
        to: String,
        /// True to replace a file or a link at the new path; false to fail if it exists.
        replace: bool,
    },
    /// Creates a directory unless it exists.
    MakeDirectory {
        /// The directory.
        path: String,
    },
    /// Unpacks a tar archive: directories, files, symbolic and hard links. Replaces existing files.
    Unpack {
        /// The directory.
        below: String,
        /// The uncompressed archive.
        archive: Bytes,
    },
}

impl FileWork {
    /// Returns the name of the tool that must be permitted.
    const fn tool(&self) -> &'static str {
        match self {
            Self::Write { .. } => "put_file",
            Self::WriteAll { .. } => "put_files",
            Self::Remove { .. } => RemoveTool::NAME,
            Self::Move { .. } => "move_entry",
            Self::MakeDirectory { .. } => "make_directory",
            Self::Unpack { .. } => "unpack_tar",
        }
    }

    /// Returns true if only clients make calls of that name; their parameters lack the contents.
    #[doc(hidden)]
    pub fn is_name(tool: &str) -> bool {
        matches!(tool, "put_file" | "put_files" | "move_entry" | "make_directory" | "unpack_tar")
    }

    /// Returns the recorded parameters; contents are recorded with the files.
    fn params(&self) -> Value {
        match self {
            Self::Write { path, bytes, executable, create } => {
                json!({ "path": path, "bytes": bytes.len(), "executable": executable, "create": create })
            }
            Self::WriteAll { files } => {
                let file = |(path, bytes): &(String, Bytes)| json!({ "path": path, "bytes": bytes.len() });
                json!({ "files": files.iter().map(file).collect::<Vec<_>>() })
            }
            Self::Remove { path, recursive: _ } => json!({ "path": path }),
            Self::Move { from, to, replace } => json!({ "from": from, "to": to, "replace": replace }),
            Self::MakeDirectory { path } => json!({ "path": path }),
            Self::Unpack { below, archive } => json!({ "below": below, "bytes": archive.len() }),
        }
    }

    fn make(self, context: &mut ToolContext) -> Result<(Value, String), ToolError> {
        match self {
            Self::Write { path, bytes, executable, create } => write(context, &path, bytes, executable, create),
            Self::WriteAll { files } => {
                let written = files.into_iter().map(|(path, bytes)| write(context, &path, bytes, None, false));
                let (results, texts): (Vec<_>, Vec<_>) = written.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
                Ok((json!({ "files": results }), texts.join("\n")))
            }
            Self::Remove { path, recursive } => remove(context, &path, recursive),
            Self::Move { from, to, replace } => rename(context, &from, &to, replace),
            Self::MakeDirectory { path } => {
                let path = context.path(&path)?;
                let files = context.filesystem();
                let created = !files.is_directory(&path)?;
                if created {
                    files.make_directory(&path)?;
                }
                let path = path.rooted();
                Ok((json!({ "path": path, "created": created }), format!("{path} is a directory")))
            }
            Self::Unpack { below, archive } => unpack(context, &below, &archive),
        }
    }
}

fn write(
    context: &mut ToolContext,
    path: &str,
    bytes: Bytes,
    executable: Option<bool>,
    create: bool,
) -> Result<(Value, String), ToolError> {
    let asked = context.path(path)?;
    let files = context.filesystem();
    let path = if create { files.beside_links(&asked)? } else { files.resolve(&asked)? };
    if create && files.tree().get(&path).is_some() {
        return Err(ToolError::new(format!("{} already exists", asked.rooted())));
    }
    let size = bytes.len();
    put(files, &path, bytes, executable)?;
    let version = files.tree().get(&path).map_or(0, |entry| entry.version);
    let path = path.rooted();
    let text = format!("wrote {path} ({})", counted(size, "byte"));
    Ok((json!({ "path": path, "size": size, "version": version }), text))
}

/// Writes a file to a vacant path or over a file.
fn put(files: &mut Filesystem, path: &EntryPath, bytes: Bytes, executable: Option<bool>) -> Result<(), ToolError> {
    let (how, was) = match files.tree().node(path) {
        None => (WriteMode::Create, files.mode_of_new(executable == Some(true))),
        Some(Node::File { mode, .. }) => (WriteMode::Overwrite, *mode),
        Some(_) => return Err(ToolError::new(format!("{} exists and is not a file", path.rooted()))),
    };
    let mode = executable.map_or(was, |executable| was.with_executable(executable));
    files.put(path, bytes, mode, how)
}

fn remove(context: &mut ToolContext, path: &str, recursive: bool) -> Result<(Value, String), ToolError> {
    let asked = context.path(path)?;
    let files = context.filesystem();
    let path = if asked.is_root() { asked.clone() } else { files.beside_links(&asked)? };
    if !path.is_root() && files.tree().get(&path).is_none() {
        return Err(missing(&asked, &path));
    }
    let below = files.tree().below(&path).count();
    if below > 0 && !recursive && !path.is_root() {
        return Err(ToolError::new(format!(
            "{} is a directory with {below} entries; remove it recursively",
            path.rooted()
        )));
    }
    files.remove(&path)?;
    let path = path.rooted();
    Ok((json!({ "path": path, "removed": 1 + below }), format!("removed {path}")))
}

fn rename(context: &mut ToolContext, from: &str, to: &str, replace: bool) -> Result<(Value, String), ToolError> {
    let (asked, to) = (context.path(from)?, context.path(to)?);
    let files = context.filesystem();
    let (from, to) = (files.beside_links(&asked)?, files.beside_links(&to)?);
    if files.tree().get(&from).is_none() {
        return Err(missing(&asked, &from));
    }
    if from == to || to.is_below(&from) {
        return Err(ToolError::new(format!("{} can't be moved to {}", from.rooted(), to.rooted())));
    }
    let taken = files.tree().get(&to).map(|entry| matches!(entry.node, Node::File { .. } | Node::Symlink { .. }));
    match taken {
        Some(true) if replace => files.remove(&to)?,
        Some(true) => return Err(ToolError::new(format!("{} already exists", to.rooted()))),
        Some(false) => return Err(ToolError::new(format!("{} already exists and is not a file", to.rooted()))),
        None => {}
    }
    let all = std::iter::once(&from).chain(files.tree().below(&from).map(|(path, _)| path)).cloned();
    let moved: Vec<(EntryPath, Node)> =
        all.filter_map(|path| Some((path.clone(), files.tree().get(&path)?.node.clone()))).collect();
    if let Some((lost, _)) = moved.iter().find(|(_, node)| !can_be_made(node)) {
        let lost = lost.rooted();
        return Err(ToolError::new(format!("the contents of {lost} were not stored; move it with a command")));
    }
    files.remove(&from)?;
    for (path, node) in &moved {
        let below = path.as_bytes().get(from.as_bytes().len()..).unwrap_or_default();
        files.place(&EntryPath::from_bytes(&[to.as_bytes(), below].concat())?, node.clone())?;
    }
    let (from, to, count) = (from.rooted(), to.rooted(), moved.len());
    Ok((json!({ "from": from, "to": to, "entries": count }), format!("moved {from} to {to}")))
}

fn unpack(context: &mut ToolContext, below: &str, archive: &[u8]) -> Result<(Value, String), ToolError> {
    let root = context.path(below)?;
    let files = context.filesystem();
    if !root.is_root() && !files.is_directory(&root)? {
        files.make_directory(&root)?;
    }
    let root = files.resolve(&root)?;
    let broken = |error: std::io::Error| ToolError::new(format!("the archive can't be read: {error}"));
    let (mut entries, mut bytes) = (0_u64, 0_u64);
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path_bytes().into_owned();
        let Some(path) = place_of(&root, &name)? else { continue };
        let kind = entry.header().entry_type();
        let link = entry.link_name_bytes().map(|link| link.into_owned());
        match (kind, link) {
            (tar::EntryType::Directory, _) => {
                if !files.is_directory(&path)? {
                    files.make_directory(&path)?;
                }
            }
            (tar::EntryType::Regular | tar::EntryType::Continuous, _) => {
                let mut contents = Vec::new();
                entry.read_to_end(&mut contents).map_err(broken)?;
                bytes += contents.len() as u64;
                let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                clear(files, &path)?;
                put(files, &path, contents.into(), Some(executable))?;
            }
            (tar::EntryType::Symlink, Some(target)) => {
                clear(files, &path)?;
                files.link(&path, &target)?;
            }
            (tar::EntryType::Link, Some(other)) => {
                let other = place_of(&root, &other)?.unwrap_or_else(EntryPath::root);
                let contents = files.read(&other)?;
                bytes += contents.len() as u64;
                clear(files, &path)?;
                put(files, &path, contents, None)?;
            }
            _ => {
                let name = String::from_utf8_lossy(&name).into_owned();
                return Err(ToolError::new(format!("{name:.200} is neither a file nor a directory nor a link")));
            }
        }
        entries += 1;
    }
    let root = root.rooted();
    let (count, size) = (counted(entries, "entry"), counted(bytes, "byte"));
    let text = format!("unpacked {count} ({size}) into {root}");
    Ok((json!({ "path": root, "entries": entries, "bytes": bytes }), text))
}

/// Removes a link at the path of a new file, which would be written through it.
fn clear(files: &mut Filesystem, path: &EntryPath) -> Result<(), ToolError> {
    match files.tree().node(path) {
        Some(Node::Symlink { .. } | Node::Special { .. }) => files.remove(path),
        _ => Ok(()),
    }
}

/// Returns the path of an archive's entry; `None` for the root itself.
fn place_of(root: &EntryPath, name: &[u8]) -> Result<Option<EntryPath>, ToolError> {
    let mut place = root.as_bytes().to_vec();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => {
                place.extend(Some(b'/').filter(|_| !place.is_empty()));
                place.extend(part.as_bytes());
            }
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                let name = String::from_utf8_lossy(name).into_owned();
                return Err(ToolError::new(format!("{name:.200} leads out of the directory")));
            }
        }
    }
    if place == root.as_bytes() { Ok(None) } else { Ok(Some(EntryPath::from_bytes(&place)?)) }
}

/// A tool that makes one change, once.
struct OneChange(&'static str, Mutex<Option<FileWork>>);

impl ErasedTool for OneChange {
    fn describe(&self) -> ToolDescription {
        ToolDescription { name: self.0.into(), ..ErasedTool::describe(&RemoveTool) }
    }

    fn limit(&self) -> Option<Duration> {
        Some(LIMIT)
    }

    fn call<'a>(&'a self, context: &'a mut ToolContext, _: Value) -> Answering<'a> {
        Box::pin(async move {
            let again = || ToolError::new("the change was made already");
            let work = lock(&self.1).take().ok_or_else(again)?;
            let (result, text) = work.make(context)?;
            Ok(ToolAnswer { result, text })
        })
    }
}

impl ToolRunner {
    /// Makes a file change as a separate call. A refused change is an outcome, as with tools.
    ///
    /// # Errors
    /// Failure to record.
    pub async fn change_files(&self, work: FileWork) -> Result<ToolOutcome, SessionError> {
        let (runner, call) = self.for_change(work);
        runner.call(call).await
    }

    /// Returns a runner that can make the change, and the call to make.
    #[doc(hidden)]
    pub fn for_change(&self, work: FileWork) -> (Self, ToolCall) {
        let (name, params) = (work.tool(), work.params());
        let tool = Arc::new(OneChange(name, Mutex::new(Some(work))));
        (self.with_tool(name, tool), ToolCall::new(name, params))
    }
}
