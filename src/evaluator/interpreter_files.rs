//! The files that code can access: its inputs and the files that it wrote.

use std::collections::BTreeMap;

use monty_types::{ExcType, ExtFunctionResult, MontyException, MontyFileHandle, MontyObject, OsFunctionCall};

use foldspace_evaluator::LeftFile;

/// The directory of the files in a container. Paths may begin with it here, too.
const ROOT: &str = "/workspace";

#[derive(Default)]
pub(super) struct InterpreterFiles {
    given: BTreeMap<String, String>,
    left: BTreeMap<String, WrittenFile>,
}

struct WrittenFile {
    text: String,
    /// True if the text is appended to the existing file.
    is_appended: bool,
    /// True if no file may exist.
    is_new: bool,
}

/// Functions for code that need no import.
pub(super) const HELPERS: [&str; 2] = ["read_text", "write_text"];

impl InterpreterFiles {
    pub(super) fn new(given: BTreeMap<String, String>) -> Self {
        Self { given, left: BTreeMap::new() }
    }

    pub(super) fn left(self) -> Vec<LeftFile> {
        let left = |(path, file): (String, WrittenFile)| {
            let WrittenFile { text, is_appended, is_new } = file;
            LeftFile { path, text, is_appended, is_new }
        };
        self.left.into_iter().map(left).collect()
    }

    /// Calls one of the [`HELPERS`]: `read_text(path)` and `write_text(path, content, mode="create")`.
    pub(super) fn help(
        &mut self,
        helper: &str,
        args: Vec<MontyObject>,
        named: Vec<(MontyObject, MontyObject)>,
    ) -> Result<MontyObject, MontyException> {
        let (names, least): (&[&str], usize) = match helper {
            "read_text" => (&["path"], 1),
            _ => (&["path", "content", "mode"], 2),
        };
        let given = texts(helper, names, args, named)?;
        if given.iter().take(least).any(Option::is_none) {
            let what = format!("{helper}() takes {}", names.join(", "));
            return Err(raised(ExcType::TypeError, &what));
        }
        let mut given = given.into_iter().map(Option::unwrap_or_default);
        let mut next = || given.next().unwrap_or_default();
        let path = place(&next())?;
        if helper == "read_text" {
            return Ok(MontyObject::String(self.text(&path)?));
        }
        let content = next();
        match next().as_str() {
            "append" => Ok(self.written(path, &content, true)),
            "overwrite" => Ok(self.written(path, &content, false)),
            "" | "create" if self.knows(&path) => {
                Err(raised(ExcType::FileExistsError, &format!("[Errno 17] File exists: '{path}'")))
            }
            "" | "create" => {
                let length = self.written(path.clone(), &content, false);
                self.left.entry(path).and_modify(|file| file.is_new = true);
                Ok(length)
            }
            other => {
                let what = format!("write_text() mode is '{other}'; it may be create, overwrite or append");
                Err(raised(ExcType::ValueError, &what))
            }
        }
    }

    fn knows(&self, path: &str) -> bool {
        self.given.contains_key(path) || self.left.contains_key(path)
    }

    pub(super) fn call(&mut self, call: OsFunctionCall) -> ExtFunctionResult {
        self.answer(call).map_or_else(ExtFunctionResult::Error, ExtFunctionResult::Return)
    }

    fn answer(&mut self, call: OsFunctionCall) -> Result<MontyObject, MontyException> {
        use OsFunctionCall as Call;
        Ok(match call {
            Call::Open(args) => {
                let (path, mode) = (place(&args.path)?, args.mode);
                if mode.is_binary() {
                    return Err(raised(ExcType::ValueError, "binary files are not supported here; open them as text"));
                }
                match mode.as_str() {
                    "r" => drop(self.text(&path)?),
                    "a" => self.write(path, "", true),
                    _ => self.write(path, "", false),
                }
                MontyObject::FileHandle(MontyFileHandle { path: args.path.into_string(), mode, position: 0 })
            }
            Call::ReadText(path) => MontyObject::String(self.text(&place(&path)?)?),
            Call::ReadBytes(path) => MontyObject::Bytes(self.text(&place(&path)?)?.into_bytes()),
            Call::WriteText(args) => self.written(place(&args.path)?, &args.data, false),
            Call::AppendText(args) => self.written(place(&args.path)?, &args.data, true),
            Call::Exists(path) | Call::IsFile(path) => MontyObject::Bool(self.knows(&place(&path)?)),
            // Directories are created with their files.
            Call::Mkdir(_) => MontyObject::None,
            other @ (Call::Getenv(_) | Call::GetEnviron | Call::DateToday | Call::DateTimeNow(_)) => {
                return Err(raised(ExcType::RuntimeError, &format!("{} is not supported here", other.name())));
            }
            other => {
                let what = format!("{} is not supported here", other.name());
                return Err(raised(ExcType::PermissionError, &what));
            }
        })
    }

    fn text(&self, path: &str) -> Result<String, MontyException> {
        let given = self.given.get(path);
        let missing = || {
            let what = format!("[Errno 2] No such file or directory: '{path}' (list files to read in `reads`)");
            raised(ExcType::FileNotFoundError, &what)
        };
        match self.left.get(path) {
            Some(WrittenFile { text, is_appended: false, .. }) => Ok(text.clone()),
            Some(WrittenFile { text, .. }) => Ok(format!("{}{text}", given.map_or("", String::as_str))),
            None => given.cloned().ok_or_else(missing),
        }
    }

    fn written(&mut self, path: String, text: &str, is_appended: bool) -> MontyObject {
        self.write(path, text, is_appended);
        MontyObject::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))
    }

    fn write(&mut self, path: String, text: &str, is_appended: bool) {
        let none = || WrittenFile { text: String::new(), is_appended, is_new: false };
        let file = self.left.entry(path).or_insert_with(none);
        if !is_appended {
            file.text.clear();
            file.is_appended = false;
        }
        file.text.push_str(text);
    }
}

/// Assigns a helper's arguments to its parameters.
fn texts(
    helper: &str,
    names: &[&str],
    args: Vec<MontyObject>,
    named: Vec<(MontyObject, MontyObject)>,
) -> Result<Vec<Option<String>>, MontyException> {
    let mut given = vec![None; names.len()];
    let positional = args.into_iter().enumerate().map(|(at, value)| (Some(at), value));
    let named = named
        .into_iter()
        .map(|(name, value)| (names.iter().position(|known| MontyObject::String((*known).to_owned()) == name), value));
    for (at, value) in positional.chain(named) {
        let Some(slot) = at.and_then(|at| given.get_mut(at)) else {
            return Err(raised(ExcType::TypeError, &format!("{helper}() takes {}", names.join(", "))));
        };
        *slot = match value {
            MontyObject::String(text) | MontyObject::Path(text) => Some(text),
            other => {
                let what = format!("{helper}() takes texts, not {}", other.type_name());
                return Err(raised(ExcType::TypeError, &what));
            }
        };
    }
    Ok(given)
}

/// Returns the path below the root.
fn place(path: &str) -> Result<String, MontyException> {
    let below = path.strip_prefix(ROOT).filter(|below| below.starts_with('/')).unwrap_or(path);
    let mut segments = Vec::new();
    for segment in below.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
        if segment == ".." {
            segments.pop().ok_or_else(|| outside(path))?;
        } else {
            segments.push(segment);
        }
    }
    if segments.is_empty() {
        return Err(raised(ExcType::IsADirectoryError, &format!("[Errno 21] Is a directory: '{path}'")));
    }
    Ok(segments.join("/"))
}

fn outside(path: &str) -> MontyException {
    raised(ExcType::PermissionError, &format!("[Errno 13] '{path}' leads out of the workspace"))
}

fn raised(kind: ExcType, message: &str) -> MontyException {
    MontyException::new(kind, Some(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        let place = |path: &str| super::place(path).ok();
        for path in ["d/a", "/d/a", "./d//a", "/workspace/d/a", "d/x/../a"] {
            assert_eq!(place(path).as_deref(), Some("d/a"), "{path}");
        }
        for path in ["../a", "/..", "d/../../a", "/workspace/../a", "", "/", ".", "/workspace/"] {
            assert_eq!(place(path), None, "{path}");
        }
        assert_eq!(place("/workspacex/a").as_deref(), Some("workspacex/a"));
    }

    #[test]
    fn text_appended_is_read_behind_the_files_own() {
        let mut files = InterpreterFiles::new(BTreeMap::from([("a".to_owned(), "1".to_owned())]));
        files.write("a".to_owned(), "2", true);
        assert_eq!(files.text("a").ok().as_deref(), Some("12"));
        let left = LeftFile { path: "a".to_owned(), text: "2".to_owned(), is_appended: true, is_new: false };
        assert_eq!(files.left(), [left]);
    }
}
