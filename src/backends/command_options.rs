//! Options of all commands of a session, on every backend that runs commands.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::disk::make_private;
use super::shell::DEFAULT_KEEP_BYTES;
use crate::engine::error::ValueError;
use crate::engine::event::VariableValue;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;

/// The maximum number of variables that a session or a call may set for commands.
pub const VARIABLES_MAX: usize = 64;
/// The maximum number of ASCII characters in a variable's name.
pub const NAME_MAX: usize = 80;
/// The maximum number of characters in a variable's value.
const VALUE_MAX: usize = 48_000;
const OUTPUT_BYTES: usize = 32 << 10;
const OUTPUT_LEAST: usize = 1 << 10;
const OUTPUT_MOST: usize = 1 << 20;
const VALUES: &str = "environment.json";
/// The maximum number of globs of generated files.
const GENERATED_MAX: usize = 64;
const FIELDS: [&str; 7] =
    ["environment", "record_environment", "workdir", "output_bytes", "keep_output_bytes", "merge_output", "generated"];

/// Options of all commands of a session. They are stored among the fields of a backend's options.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::WorkspaceSpec;
/// use foldspace::backends::{CommandOptions, HostOptions};
/// use foldspace::event::VariableValue;
///
/// let environment = [("TOKEN".to_owned(), VariableValue::Text("secret".to_owned()))].into();
/// let commands = CommandOptions { environment, ..CommandOptions::default() };
/// let spec = WorkspaceSpec::Host(HostOptions { commands, ..HostOptions::default() });
/// // The journal has only its digest.
/// assert!(spec.options()["environment"]["TOKEN"]["digest"].is_string());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommandOptions {
    /// Variables for all commands that run without a replaced environment: at most 64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, VariableValue>,
    /// True to record the values of `environment`, not only their digests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record_environment: bool,
    /// The default working directory of commands; created if missing.
    #[serde(deserialize_with = "below_workspace", skip_serializing_if = "EntryPath::is_root")]
    pub workdir: EntryPath,
    /// Bytes of each stream that a tool returns: 1 KiB to 1 MiB.
    #[serde(skip_serializing_if = "is_usual_output")]
    pub output_bytes: usize,
    /// Bytes of each stream that are recorded: 1 KiB to 8 MiB.
    #[serde(skip_serializing_if = "is_usual_keep")]
    pub keep_output_bytes: usize,
    /// True to merge standard error into standard output, in the order of writing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub merge_output: bool,
    /// Globs of files that commands generate, at most 64. A merge never conflicts over these files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
}

impl Default for CommandOptions {
    fn default() -> Self {
        Self {
            environment: BTreeMap::new(),
            record_environment: false,
            workdir: EntryPath::root(),
            output_bytes: OUTPUT_BYTES,
            keep_output_bytes: DEFAULT_KEEP_BYTES,
            merge_output: false,
            generated: Vec::new(),
        }
    }
}

fn is_usual_output(bytes: &usize) -> bool {
    *bytes == OUTPUT_BYTES
}

fn is_usual_keep(bytes: &usize) -> bool {
    *bytes == DEFAULT_KEEP_BYTES
}

fn below_workspace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<EntryPath, D::Error> {
    let text = String::deserialize(deserializer)?;
    CommandOptions::workdir_of(&text).map_err(D::Error::custom)
}

impl CommandOptions {
    /// Parses a directory for [`workdir`](CommandOptions::workdir), which may begin with `/workspace`, as for tools.
    pub fn workdir_of(text: &str) -> Result<EntryPath, ValueError> {
        let below = text.strip_prefix("/workspace").filter(|below| below.is_empty() || below.starts_with('/'));
        EntryPath::lookup(below.unwrap_or(text))
    }

    /// Removes the command options from a backend's options and returns them.
    pub(super) fn take(options: &mut Value) -> serde_json::Result<Self> {
        let mut own = Map::new();
        if let Some(fields) = options.as_object_mut() {
            own.extend(FIELDS.iter().filter_map(|field| fields.remove_entry(*field)));
        }
        serde_json::from_value(own.into())
    }

    /// Adds them to a backend's options, with the values of variables only if those may be seen.
    pub(super) fn put(&self, options: &mut Value, with_values: bool) {
        let shown = if with_values || self.record_environment { self.clone() } else { self.without_values() };
        if let (Some(fields), Ok(Value::Object(own))) = (options.as_object_mut(), serde_json::to_value(shown)) {
            fields.extend(own);
        }
    }

    /// Returns the variables as they are recorded.
    pub(crate) fn recorded_environment(&self) -> BTreeMap<String, VariableValue> {
        if self.record_environment { self.environment.clone() } else { self.without_values().environment }
    }

    fn without_values(&self) -> Self {
        let digest = |value: &VariableValue| VariableValue::Recorded { digest: value.digest() };
        let environment = self.environment.iter().map(|(name, value)| (name.clone(), digest(value))).collect();
        Self { environment, ..self.clone() }
    }

    /// Returns the variables that have values.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().filter_map(|(name, value)| match value {
            VariableValue::Text(text) => Some((name.as_str(), text.as_str())),
            VariableValue::Recorded { .. } => None,
        })
    }

    /// Checks numbers, names and values.
    pub(super) fn check(&self) -> Result<(), String> {
        check_names(self.environment.keys()).map_err(|what| format!("environment{what}"))?;
        for (name, value) in self.variables() {
            let chars = value.chars().count();
            if chars > VALUE_MAX || value.contains('\0') {
                return Err(format!("environment: {name} must have at most {VALUE_MAX} characters, and no NUL"));
            }
        }
        if self.generated.len() > GENERATED_MAX {
            return Err(format!("generated: {} globs; the limit is {GENERATED_MAX}", self.generated.len()));
        }
        for glob in &self.generated {
            PathGlob::new(glob)
                .map_err(|error| format!("generated: the glob {glob:?} is invalid: {}", error.kind()))?;
        }
        let ranges = [
            ("output_bytes", self.output_bytes, OUTPUT_MOST),
            ("keep_output_bytes", self.keep_output_bytes, DEFAULT_KEEP_BYTES),
        ];
        match ranges.into_iter().find(|(_, bytes, most)| !(OUTPUT_LEAST..=*most).contains(bytes)) {
            Some((name, _, most)) => Err(format!("{name} must be a number from {OUTPUT_LEAST} to {most}")),
            None => Ok(()),
        }
    }

    /// Describes the unusual options to a model.
    #[doc(hidden)]
    pub fn advice(&self, root: &str) -> String {
        let mut text = String::new();
        if !self.workdir.is_root() {
            text.push_str(&format!(" Commands begin in {}{}.", root.trim_end_matches('/'), self.workdir.rooted()));
        }
        if !self.environment.is_empty() {
            let names: Vec<_> = self.environment.keys().map(String::as_str).collect();
            text.push_str(&format!(" They have the variables {}.", names.join(", ")));
        }
        let missing = self.environment.len() - self.variables().count();
        if missing > 0 {
            text.push_str(&format!(" {missing} of these have no value on this machine."));
        }
        if self.output_bytes != OUTPUT_BYTES {
            text.push_str(&format!(" At most {} bytes of each output stream are returned.", self.output_bytes));
        }
        if self.merge_output {
            text.push_str(" Standard error comes with the standard output.");
        }
        text
    }

    /// Stores the values that are not recorded in a private file, for later processes.
    pub(super) fn keep_values(&self, directory: &Path) -> std::io::Result<()> {
        let values: BTreeMap<&str, &str> = self.variables().collect();
        if values.is_empty() || self.record_environment {
            return Ok(());
        }
        make_private(directory)?;
        // A temporary file is readable only by its owner.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(&serde_json::to_vec(&values)?)?;
        file.as_file().sync_all()?;
        file.persist(directory.join(VALUES)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Loads the stored values. A value with another digest does not belong to the variable and is ignored.
    pub(super) fn take_values(&mut self, directory: &Path) {
        let is_missing = |value: &VariableValue| matches!(value, VariableValue::Recorded { .. });
        if !self.environment.values().any(is_missing) {
            return;
        }
        let mut kept = read(&directory.join(VALUES)).unwrap_or_default();
        for (name, value) in &mut self.environment {
            match kept.remove(name) {
                Some(text) if Digest::of(text.as_bytes()) == value.digest() => *value = VariableValue::Text(text),
                _ if is_missing(value) => {
                    tracing::warn!(variable = %name, "a session variable has no value on this machine");
                }
                _ => {}
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the values of variables are stored next to the journal")]
fn read(path: &Path) -> Option<BTreeMap<String, String>> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Checks the number of variables and their names.
pub fn check_names<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> Result<(), String> {
    let count = names.len();
    if count > VARIABLES_MAX {
        return Err(format!(" has {count} variables; at most {VARIABLES_MAX} are allowed"));
    }
    for name in names {
        let shown: String = name.chars().take(NAME_MAX).collect();
        if name.is_empty() || name.len() > NAME_MAX || !name.is_ascii() || name.contains(['=', '\0']) {
            return Err(format!(": name {shown:?} must be ASCII, at most {NAME_MAX} characters, and have no `=`"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_in(options: Value) -> Result<CommandOptions, String> {
        let read = CommandOptions::take(&mut options.clone()).map_err(|error| error.to_string())?;
        read.check().map(|()| read)
    }

    #[test]
    fn command_options_out_of_range_are_refused() {
        let many: BTreeMap<String, &str> = (0..65).map(|n| (format!("N{n}"), "")).collect();
        for (wrong, words) in [
            (json!({ "environment": many }), "65 variables"),
            (json!({ "environment": { "A=B": "1" } }), "no `=`"),
            (json!({ "environment": { "é": "1" } }), "ASCII"),
            (json!({ "environment": { "A": "x".repeat(48_001) } }), "48000"),
            (json!({ "environment": { "A": 1 } }), "VariableValue"),
            (json!({ "output_bytes": 1023 }), "1024 to 1048576"),
            (json!({ "keep_output_bytes": (8 << 20) + 1 }), "1024 to 8388608"),
            (json!({ "workdir": "../a" }), ".."),
        ] {
            let refused = read_in(wrong).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        let read = read_in(json!({ "workdir": "/workspace/a/b", "environment": { "A": "1" } })).unwrap();
        assert_eq!(read.workdir.rooted(), "/a/b");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test changes the file of values")]
    fn variables_are_kept_with_their_own_values_only() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let given = read_in(json!({ "environment": { "A": "secret", "B": "other" } })).unwrap();
        given.keep_values(home.path()).unwrap();
        let mode = std::fs::metadata(home.path().join(VALUES)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut read = given.without_values();
        assert_eq!(read.variables().count(), 0);
        read.take_values(home.path());
        assert_eq!(read, given);
        let changed = r#"{"A":"secret","B":"changed"}"#;
        std::fs::write(home.path().join(VALUES), changed).unwrap();
        let mut read = given.without_values();
        read.take_values(home.path());
        assert_eq!(read.variables().collect::<Vec<_>>(), [("A", "secret")]);
        assert!(read.advice("/workspace").contains("1 of these have no value"));
    }
}
