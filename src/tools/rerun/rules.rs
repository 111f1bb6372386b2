//! Rules for differences between two runs of the same calls: times, durations, addresses, places.

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::engine::error::ValueError;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::PathGlob;
use crate::reducers::regex_error;

const PATTERN_BYTES: usize = 4 << 20;

/// Rules that make outcomes and files comparable.
///
/// Two texts count as equal if they are equal after all rules: each rule replaces the matches of a pattern, in order.
/// Texts are messages and results; files are compared byte for byte, unless the rules declare them texts. Ignored
/// fields of results and ignored paths are not compared.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{tools::NormalRules};
/// let rules = NormalRules::default();
/// assert_eq!(rules.normal("ok in 0.31s at 0x7f3a2b10c0de"), rules.normal("ok in 1.07s at 0x55aa00112233"));
/// let own = NormalRules::bare().with_json(r#"{"texts": [{"pattern": "run-[0-9]+", "replace": "run-N"}]}"#)?;
/// assert_eq!(own.normal("run-17"), "run-N");
/// # Ok::<(), foldspace::event::ValueError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NormalRules {
    texts: Vec<(Regex, String)>,
    fields: Vec<Field>,
    ignored: Vec<PathGlob>,
    text_files: Vec<PathGlob>,
    roots: Vec<String>,
}

#[derive(Debug, Clone)]
struct Field {
    /// The tool; `None` for any.
    tool: Option<String>,
    /// Path in the result, or a name anywhere in it.
    place: Result<Vec<String>, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RulesFile {
    texts: Vec<WrittenText>,
    ignore_fields: Vec<String>,
    ignore_paths: Vec<String>,
    text_files: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenText {
    pattern: String,
    replace: String,
}

/// Texts that differ from run to run in most programs' output. The order matters: a timestamp is replaced before its
/// parts are. The last is the block count of `ls -l`, recognized by the next entry. Here `$1` is the first group.
const TEXTS: [(&str, &str); 10] = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?", "<time>"),
    (
        r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) +(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2} +\d\d:\d\d:\d\d( [A-Z]{3,4})?( \d{4})?",
        "<time>",
    ),
    // As in `ls -l` and system logs: the year is in the place of the time.
    (r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d (\d\d:\d\d(:\d\d)?| \d{4})\b", "<time>"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
    (r"\b1[5-9]\d{8}(\.\d+|\d{3}(\d{3}){0,2})?\b", "<time>"),
    (r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|secs?|seconds?|minutes?)\b", "<duration>"),
    (r"\b0x[0-9a-fA-F]{5,16}\b", "<address>"),
    (r"(?i)\b(pid|process)([ =:#]*)\d+\b", "<process>"),
    (r"/tmp/[A-Za-z0-9._-]+", "<tmp>"),
    (r"(?m)^total [\d.]+[KMGTP]?\n([-bcdlps][-r][-w][-xsS][-r][-w][-xsS][-r][-w][-xtT])", "total <blocks>\n$1"),
];
/// Times in results, the place of bash, notes, and versions of files, which restart in a fresh session.
const FIELDS: [(&str, &str); 10] = [
    ("edit_file", "/version"),
    ("execute_script", "/duration_seconds"),
    ("execute_script", "/exit_note"),
    ("execute_script", "/interpreter"),
    ("ls", "/entries/*/created_at"),
    ("ls", "/entries/*/updated_at"),
    ("ls", "/entries/*/version"),
    ("shell_execute", "/duration_seconds"),
    ("shell_execute", "/exit_note"),
    ("write_file", "/version"),
];
/// Compiled Python contains the time of its source; an index of git contains the times and inodes of files.
const PATHS: [&str; 4] = ["*.pyc", "__pycache__", "**/__pycache__/**", "**/.git/index"];

impl Default for NormalRules {
    /// Returns rules for times, durations, addresses, process numbers and names below `/tmp` in texts; for the standard
    /// tools' durations, times and versions; for compiled Python and indexes of git.
    fn default() -> Self {
        let text = |(pattern, replace): (&str, &str)| WrittenText { pattern: pattern.into(), replace: replace.into() };
        let written = RulesFile {
            texts: TEXTS.into_iter().map(text).collect(),
            ignore_paths: PATHS.map(str::to_owned).to_vec(),
            ..RulesFile::default()
        };
        // A test checks that they are valid, so this can't fail.
        let mut rules = Self::bare().with(written).unwrap_or_else(|_| Self::bare());
        rules.fields = FIELDS.into_iter().map(|(tool, place)| Field::at(Some(tool), place)).collect();
        rules
    }
}

impl NormalRules {
    /// Creates empty rules: everything must be equal.
    pub fn bare() -> Self {
        let (ignored, text_files) = (Vec::new(), Vec::new());
        Self { texts: Vec::new(), fields: Vec::new(), ignored, text_files, roots: Vec::new() }
    }

    /// Adds rules from JSON: `{"texts": [{"pattern": REGEX, "replace": TEXT}], "ignore_fields": [FIELD],
    /// "ignore_paths": [GLOB], "text_files": [GLOB]}`, each optional. `$` has no meaning in a replacement. A field is a
    /// name, which is ignored anywhere in a result, or a place such as `/entries/*/size`.
    ///
    /// # Errors
    /// [`ValueError`] for invalid rules, also for an unknown field.
    pub fn with_json(self, text: &str) -> Result<Self, ValueError> {
        let wrong = |error: &dyn std::fmt::Display| ValueError::new(format!("invalid rules: {error}"));
        let written: Value = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        if !written.is_object() {
            return Err(wrong(&"expected an object, such as {\"ignore_paths\": []}"));
        }
        let mut written: RulesFile = serde_json::from_value(written).map_err(|error| wrong(&error))?;
        written.texts.iter_mut().for_each(|text| text.replace = text.replace.replace('$', "$$"));
        self.with(written)
    }

    fn with(mut self, written: RulesFile) -> Result<Self, ValueError> {
        for WrittenText { pattern, replace } in written.texts {
            let compiled = regex::RegexBuilder::new(&pattern).size_limit(PATTERN_BYTES).build();
            let compiled = compiled.map_err(|error| wrong(&pattern, &error))?;
            self.texts.push((compiled, replace));
        }
        self.fields.extend(written.ignore_fields.iter().map(|field| Field::at(None, field)));
        self.ignored.extend(globs(&written.ignore_paths)?);
        self.text_files.extend(globs(&written.text_files)?);
        Ok(self)
    }

    /// Adds workspace roots that commands of the recorded session saw; for a fork, also its ancestors' roots.
    #[must_use]
    pub fn with_roots(mut self, roots: impl IntoIterator<Item = String>) -> Self {
        self.roots.extend(roots);
        self
    }

    pub(super) fn roots(&self) -> &[String] {
        &self.roots
    }

    /// Returns the text after all rules.
    pub fn normal(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, replace) in &self.texts {
            if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(&text, replace.as_str()) {
                text = replaced;
            }
        }
        text
    }

    /// Returns true if a path is not compared.
    pub fn ignores(&self, path: &EntryPath) -> bool {
        self.ignored.iter().any(|glob| glob.fits(path))
    }

    /// Returns true if a file is compared as text, by the rules for texts.
    pub fn takes_for_text(&self, path: &EntryPath) -> bool {
        self.text_files.iter().any(|glob| glob.fits(path))
    }

    pub(super) fn normal_result(&self, tool: &str, result: &Value, text: &dyn Fn(&str) -> String) -> Value {
        let fields: Vec<&Field> = self.fields.iter().filter(|field| field.is_of(tool)).collect();
        normal_value(result, &mut Vec::new(), &fields, text)
    }
}

impl Field {
    fn at(tool: Option<&str>, field: &str) -> Self {
        let place = match field.strip_prefix('/') {
            Some(place) => Ok(place.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect()),
            None => Err(field.to_owned()),
        };
        Self { tool: tool.map(str::to_owned), place }
    }

    fn is_of(&self, tool: &str) -> bool {
        self.tool.as_deref().is_none_or(|own| own == tool)
    }

    fn is_at(&self, path: &[String]) -> bool {
        match &self.place {
            Err(name) => path.last() == Some(name),
            Ok(place) => {
                let is_part = |(part, own): (&String, &String)| own == "*" || own == part;
                place.len() == path.len() && path.iter().zip(place).all(is_part)
            }
        }
    }
}

fn globs(written: &[String]) -> Result<Vec<PathGlob>, ValueError> {
    written.iter().map(|glob| PathGlob::new(glob).map_err(|error| wrong(glob, error.kind()))).collect()
}

pub(super) fn normal_texts(value: &Value, text: &dyn Fn(&str) -> String) -> Value {
    normal_value(value, &mut Vec::new(), &[], text)
}

fn normal_value(value: &Value, path: &mut Vec<String>, ignored: &[&Field], text: &dyn Fn(&str) -> String) -> Value {
    let mut below = |name: &str, item: &Value| {
        path.push(name.to_owned());
        let is_ignored = ignored.iter().any(|field| field.is_at(path));
        let normal = (!is_ignored).then(|| normal_value(item, path, ignored, text));
        path.pop();
        normal
    };
    match value {
        Value::String(found) => Value::String(text(found)),
        Value::Array(items) => {
            items.iter().enumerate().filter_map(|(number, item)| below(&number.to_string(), item)).collect()
        }
        Value::Object(fields) => {
            let compared = fields.iter().filter_map(|(name, item)| Some((name.clone(), below(name, item)?)));
            Value::Object(compared.collect())
        }
        other => other.clone(),
    }
}

fn wrong(pattern: &str, error: &impl std::fmt::Display) -> ValueError {
    ValueError::new(format!("invalid pattern {pattern:?}: {}", regex_error(error)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rerun_rules_normalise_volatile_text() {
        let rules = NormalRules::default();
        assert_eq!(rules.texts.len(), TEXTS.len(), "the built-in rules are right");
        let same = [
            ("2025-01-31T12:00:00.123Z x", "2026-11-21 08:15:01 x"),
            ("Sat Nov 21 21:10:25 UTC 2026", "Mon Jan  1 00:00:00 UTC 2024"),
            ("at 12:00:00.5,", "at 23:59:59,"),
            ("Ran 3 tests in 0.001s", "Ran 3 tests in 12.5s"),
            ("<object at 0x7f12aa34bb56>", "<object at 0x55d0c0ffee00>"),
            ("since 1763759425.25", "since 1795297226"),
            ("1763759425123", "1795297226000999000"),
            ("pid 17 ended", "pid 99999 ended"),
            ("/tmp/tmpab12cd/x", "/tmp/tmpzz99/x"),
            (
                "total 184\ndrwxr-xr-x 2 me me 4096 Nov 23 00:11 .\n-rw-r--r-- 1 me me 7 Aug 18  2019 a",
                "total 8\ndrwxr-xr-x 2 me me 4096 Nov  3 10:12 .\n-rw-r--r-- 1 me me 7 Jan  1 23:59 a",
            ),
            ("total 4.0K\n-rw-r--r-- 1 me me 7 Nov 23 00:11 a", "total 0\n-rw-r--r-- 1 me me 7 Nov 24 00:11 a"),
            ("Nov 23 00:11:09 host sshd", "Nov 24 01:12:10 host sshd"),
        ];
        for (one, other) in same {
            assert_eq!(rules.normal(one), rules.normal(other));
            assert_ne!(one, other);
        }
        for (one, other) in [
            ("3 passed", "4 passed"),
            ("exit 1", "exit 2"),
            ("0x10", "0x20"),
            ("v1.2.3", "v1.2.4"),
            ("total 3", "total 4"),
            ("total 3\ndone", "total 4\ndone"),
            ("-rw-r--r-- 1 me me 7 Nov 23 00:11 a", "-rwxr--r-- 1 me me 7 Nov 23 00:11 a"),
            ("in May 2019", "in May 2020"),
        ] {
            assert_ne!(rules.normal(one), rules.normal(other));
        }
    }

    #[test]
    fn rerun_rules_ignore_fields() {
        let rules = NormalRules::default();
        let normal = |tool, value: Value| rules.normal_result(tool, &value, &|text| rules.normal(text));
        let one = json!({ "stdout": "in 3 ms", "duration_seconds": 0.1 });
        let other = json!({ "stdout": "in 4 ms", "duration_seconds": 0.2 });
        assert_eq!(normal("shell_execute", one.clone()), normal("shell_execute", other.clone()));
        assert_ne!(normal("own_tool", one), normal("own_tool", other), "what an unknown tool says counts");
        let listing = |version, size| json!({ "entries": [{ "name": "a", "size": size, "version": version }] });
        assert_eq!(normal("ls", listing(1, 5)), normal("ls", listing(2, 5)));
        assert_ne!(normal("ls", listing(1, 5)), normal("ls", listing(1, 6)));
        let deeper = |version| json!({ "file": { "version": version } });
        assert_ne!(normal("write_file", deeper(1)), normal("write_file", deeper(2)), "only at its place");
    }

    #[test]
    fn rerun_rules_parse_json() {
        let path = |path: &str| EntryPath::lookup(path).unwrap();
        let text =
            r#"{"texts": [{"pattern": "a+", "replace": "$0"}], "ignore_paths": ["/logs/**"], "ignore_fields": ["n"]}"#;
        let rules = NormalRules::bare().with_json(text).unwrap();
        assert_eq!(rules.normal("baaad"), "b$0d");
        assert!(!rules.takes_for_text(&path("a.log")));
        let rules = rules.with_json(r#"{"text_files": ["*.log"], "ignore_fields": ["/list/*/at"]}"#).unwrap();
        assert!(rules.takes_for_text(&path("a.log")) && rules.takes_for_text(&path("d/a.log")));
        let result = json!({ "n": 1, "at": 2, "list": [{ "at": 3, "n": 4, "left": "aa" }] });
        let normal = rules.normal_result("any", &result, &|text| rules.normal(text));
        assert_eq!(normal, json!({ "at": 2, "list": [{ "left": "$0" }] }));
        assert!(rules.ignores(&path("logs/x/y")) && !rules.ignores(&path("log")) && !rules.ignores(&path("a.pyc")));
        for ignored in
            ["d/__pycache__/a.cpython-312.pyc", "__pycache__", "d/__pycache__", "d/__pycache__/x.tmp", "a.pyc"]
        {
            assert!(NormalRules::default().ignores(&path(ignored)), "{ignored}");
        }
        assert!(!NormalRules::default().ignores(&path("d/pycache")));
        for wrong in ["", "[]", "{\"text\": []}", "{\"texts\": [{\"pattern\": \"(\", \"replace\": \"\"}]}"] {
            assert!(NormalRules::bare().with_json(wrong).is_err(), "{wrong}");
        }
        let error = NormalRules::bare().with_json(r#"{"ignore_paths": ["a{"]}"#).unwrap_err();
        assert!(error.to_string().contains("\"a{\""), "{error}");
    }
}
