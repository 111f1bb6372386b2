//! Parameters of `evaluate_python`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::GivenFile;
use crate::engine::path::EntryPath;
use crate::tools::builtin::files::{TEXT_MAX, TextMode, check_chars, text_file, utf8};
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;

const READS_MAX: usize = 64;
/// Maximum size of all given files, in bytes.
const READ_BYTES_MAX: usize = 4 << 20;
const WRITES_MAX: usize = 64;
const GLOBALS_MAX: usize = 64;

/// Parameters of `evaluate_python`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluatePythonParams {
    /// The code, which runs for at most 5 seconds; in process at most 2,000 characters, unless the session allows more.
    pub(super) code: String,
    /// Initial global variables, as JSON: at most 64, and 48,000 characters.
    #[serde(default)]
    pub(super) globals: Map<String, Value>,
    /// Text files of the workspace that it reads with `read_text(path)`, `open(path)` or `pathlib`; at most 64, and
    /// 4 MiB.
    #[serde(default)]
    pub(super) reads: Vec<String>,
    /// Files to write after a success, in addition to files that the code writes; at most 64, and none of `reads`.
    #[serde(default)]
    pub(super) writes: Vec<TemplateWrite>,
}

/// A file to write from a template.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateWrite {
    /// The file, from the workspace root.
    pub(super) file_path: String,
    /// Its text, at most 48,000 characters. `{name}` stands for a global variable of the code: a string verbatim, any
    /// other value as JSON. `{{` and `}}` stand for braces.
    #[schemars(length(max = TEXT_MAX))]
    pub(super) content: String,
    /// Effect on an existing file.
    #[serde(default)]
    pub(super) mode: TextMode,
}

impl EvaluatePythonParams {
    /// Checks the parameters. Returns the files to read.
    pub(super) fn check(&self, context: &mut ToolContext) -> Result<Vec<GivenFile>, ToolError> {
        check_count("globals", self.globals.len(), GLOBALS_MAX)?;
        check_count("reads", self.reads.len(), READS_MAX)?;
        check_count("writes", self.writes.len(), WRITES_MAX)?;
        check_chars("globals", &Value::Object(self.globals.clone()).to_string())?;
        if let Some(name) = self.globals.keys().find(|name| !is_name(name)) {
            let shown: String = name.chars().take(80).collect();
            return Err(ToolError::new(format!("globals: {shown:?} is not a variable name")));
        }
        for write in &self.writes {
            check_chars("writes: content", &write.content)?;
            EntryPath::for_creation(context.below_root(&write.file_path)?)?;
        }
        self.check_overlaps(context)?;
        let mut bytes = 0;
        let given = self.reads.iter().map(|path| {
            let path = context.path(path)?;
            let files = &*context.filesystem();
            let (_, text) = text_file(files, &path)?;
            bytes += text.len();
            if bytes > READ_BYTES_MAX {
                let what = format!("the files of reads exceed {READ_BYTES_MAX} bytes; use fewer at a time");
                return Err(ToolError::new(what));
            }
            Ok((path.clone(), utf8(&path, &text)?.to_owned()))
        });
        given.collect()
    }

    /// Refuses a path that is named twice: the order of its uses would be a guess.
    fn check_overlaps(&self, context: &ToolContext) -> Result<(), ToolError> {
        let named = self.reads.iter().map(|path| ("reads", path));
        let named = named.chain(self.writes.iter().map(|write| ("writes", &write.file_path)));
        let mut seen: BTreeMap<EntryPath, &str> = BTreeMap::new();
        for (field, path) in named {
            match seen.insert(context.path(path)?, field) {
                None => {}
                Some(other) if other == field => return Err(ToolError::new(format!("{field} names {path} twice"))),
                Some(_) => {
                    return Err(ToolError::new(format!(
                        "{path} is in reads and in writes; let the code write it: write_text(path, text, 'overwrite')"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Returns true if `name` is a Python name without leading `__`. Keywords pass here, and fail in the code.
pub(super) fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with("__")
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), ToolError> {
    match count > most {
        true => Err(ToolError::new(format!("{what} has {count} entries; at most {most} are allowed"))),
        false => Ok(()),
    }
}
