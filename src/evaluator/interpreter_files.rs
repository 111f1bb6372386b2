//! The files that code can access: its inputs and the files that it wrote.

use std::collections::BTreeMap;

use monty_types::{ExcType, ExtFunctionResult, MontyException, MontyFileHandle, MontyObject, OsFunctionCall};

use foldspace_evaluator::LeftFile;

/// The directory of the files in a container. Paths may begin with it here, too.
const ROOT: &str = "/workspace";

#[derive(Default)]
pub(super) struct InterpreterFiles {
    given: BTreeMap<String, String>,
    /// The written texts, each with true if it is appended to the existing file.
    left: BTreeMap<String, (String, bool)>,
}

impl InterpreterFiles {
    pub(super) fn new(given: BTreeMap<String, String>) -> Self {
        Self { given, left: BTreeMap::new() }
    }

    pub(super) fn left(self) -> Vec<LeftFile> {
        let left = |(path, (text, is_appended))| LeftFile { path, text, is_appended };
        self.left.into_iter().map(left).collect()
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
            Call::Exists(path) | Call::IsFile(path) => {
                let path = place(&path)?;
                MontyObject::Bool(self.given.contains_key(&path) || self.left.contains_key(&path))
            }
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
            Some((text, false)) => Ok(text.clone()),
            Some((text, true)) => Ok(format!("{}{text}", given.map_or("", String::as_str))),
            None => given.cloned().ok_or_else(missing),
        }
    }

    fn written(&mut self, path: String, text: &str, is_appended: bool) -> MontyObject {
        self.write(path, text, is_appended);
        MontyObject::Int(i64::try_from(text.chars().count()).unwrap_or(i64::MAX))
    }

    fn write(&mut self, path: String, text: &str, is_appended: bool) {
        let file = self.left.entry(path).or_insert_with(|| (String::new(), is_appended));
        match is_appended {
            true => file.0.push_str(text),
            false => *file = (text.to_owned(), false),
        }
    }
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
        let left = LeftFile { path: "a".to_owned(), text: "2".to_owned(), is_appended: true };
        assert_eq!(files.left(), [left]);
    }
}
