//! What may differ between two runs of the same calls: times, durations, addresses, places.

use std::collections::BTreeSet;

use globset::{Glob, GlobSet, GlobSetBuilder};
use regex::{NoExpand, Regex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::path::EntryPath;

/// Bytes that a compiled pattern may take.
const PATTERN_BYTES: usize = 4 << 20;

/// Rules by which outcomes and files are made comparable.
///
/// Two texts count as the same when they are the same after every rule: each match of a pattern is replaced by its
/// text, in the order of the rules. Fields of results that are ignored, and paths that are, are not compared.
///
/// ```
/// use foldspace::NormalRules;
/// let rules = NormalRules::default();
/// assert_eq!(rules.normal("ok in 0.31s at 0x7f3a2b10c0de"), rules.normal("ok in 1.07s at 0x55aa00112233"));
/// let own = NormalRules::bare().with_json(r#"{"texts": [{"pattern": "run-[0-9]+", "replace": "run-N"}]}"#)?;
/// assert_eq!(own.normal("run-17"), "run-N");
/// # Ok::<(), foldspace::RulesError>(())
/// ```
#[derive(Debug, Clone)]
pub struct NormalRules {
    texts: Vec<(Regex, String)>,
    fields: BTreeSet<String>,
    paths: Vec<Glob>,
    ignored: GlobSet,
}

/// Rules that make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// They are no JSON of the right shape.
    #[error("the rules are not right: {0}")]
    Json(String),
    /// A pattern is none.
    #[error("the pattern {pattern:?} is not right: {reason}")]
    Pattern {
        /// Which.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Rules as a file has them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// Patterns in texts: messages, results, files.
    #[serde(default)]
    texts: Vec<WrittenText>,
    /// Names of fields in results.
    #[serde(default)]
    ignore_fields: Vec<String>,
    /// Globs over paths of files.
    #[serde(default)]
    ignore_paths: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenText {
    pattern: String,
    replace: String,
}

/// What differs from run to run in most programs' output. The order matters: a moment is one before its parts are.
const TEXTS: [(&str, &str); 8] = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?", "<time>"),
    (
        r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) +(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2} +\d\d:\d\d:\d\d( [A-Z]{3,4})?( \d{4})?",
        "<time>",
    ),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
    (r"\b1[5-9]\d{8}(\.\d+|\d{3}(\d{3}){0,2})?\b", "<time>"),
    (r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|secs?|seconds?|minutes?)\b", "<duration>"),
    (r"\b0x[0-9a-fA-F]{5,16}\b", "<address>"),
    (r"(?i)\b(pid|process)([ =:#]*)\d+\b", "<process>"),
    (r"/tmp/[A-Za-z0-9._-]+", "<tmp>"),
];
/// A size that differs by more than the rules allow shows in the file itself.
const FIELDS: [&str; 6] = ["created_at", "duration_seconds", "micros", "size", "updated_at", "version"];
/// Compiled Python holds the time of its source, an index of git those of the files, and their inodes.
const PATHS: [&str; 2] = ["**/*.pyc", "**/.git/index"];

impl Default for NormalRules {
    /// Times, durations, addresses, process numbers and names below `/tmp`; durations, times, sizes and versions of
    /// files in results; compiled Python; indexes of git.
    fn default() -> Self {
        let text = |(pattern, replace): (&str, &str)| WrittenText { pattern: pattern.into(), replace: replace.into() };
        let written = Written {
            texts: TEXTS.into_iter().map(text).collect(),
            ignore_fields: FIELDS.map(str::to_owned).to_vec(),
            ignore_paths: PATHS.map(str::to_owned).to_vec(),
        };
        // They are right, which a test checks; so this can't fail.
        Self::bare().with(written).unwrap_or_else(|_| Self::bare())
    }
}

impl NormalRules {
    /// No rules: everything must be the same.
    pub fn bare() -> Self {
        Self { texts: Vec::new(), fields: BTreeSet::new(), paths: Vec::new(), ignored: GlobSet::empty() }
    }

    /// Adds rules from JSON: `{"texts": [{"pattern": REGEX, "replace": TEXT}], "ignore_fields": [NAME],
    /// "ignore_paths": [GLOB]}`, each of which may be left out. In a replacement `$` has no meaning.
    ///
    /// # Errors
    /// [`RulesError`]; a field of another name is one.
    pub fn with_json(self, text: &str) -> Result<Self, RulesError> {
        let written: Written = serde_json::from_str(text).map_err(|error| RulesError::Json(error.to_string()))?;
        self.with(written)
    }

    fn with(mut self, written: Written) -> Result<Self, RulesError> {
        for WrittenText { pattern, replace } in written.texts {
            let compiled = regex::RegexBuilder::new(&pattern).size_limit(PATTERN_BYTES).build();
            let compiled = compiled.map_err(|error| wrong(&pattern, &error))?;
            self.texts.push((compiled, replace));
        }
        self.fields.extend(written.ignore_fields);
        let mut globs = GlobSetBuilder::new();
        for path in written.ignore_paths {
            let glob = globset::GlobBuilder::new(path.trim_start_matches('/')).literal_separator(true).build();
            self.paths.push(glob.map_err(|error| wrong(&path, &error))?);
        }
        for glob in &self.paths {
            globs.add(glob.clone());
        }
        self.ignored = globs.build().map_err(|error| wrong("ignore_paths", &error))?;
        Ok(self)
    }

    /// The text after every rule.
    pub fn normal(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, replace) in &self.texts {
            if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(&text, NoExpand(replace)) {
                text = replaced;
            }
        }
        text
    }

    /// Whether what stands at a path is not compared.
    pub fn ignores(&self, path: &EntryPath) -> bool {
        self.ignored.is_match(path.to_string())
    }

    /// The value after every rule. Ignored fields are gone.
    pub(super) fn normal_value(&self, value: &Value, text: &dyn Fn(&str) -> String) -> Value {
        match value {
            Value::String(found) => Value::String(text(found)),
            Value::Array(items) => items.iter().map(|item| self.normal_value(item, text)).collect(),
            Value::Object(fields) => {
                let compared = fields.iter().filter(|(name, _)| !self.fields.contains(*name));
                let compared = compared.map(|(name, item)| (name.clone(), self.normal_value(item, text)));
                Value::Object(compared.collect())
            }
            other => other.clone(),
        }
    }
}

fn wrong(pattern: &str, error: &dyn std::fmt::Display) -> RulesError {
    RulesError::Pattern { pattern: pattern.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_made_the_same() {
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
        ];
        for (one, other) in same {
            assert_eq!(rules.normal(one), rules.normal(other));
            assert_ne!(one, other);
        }
        for (one, other) in [("3 passed", "4 passed"), ("exit 1", "exit 2"), ("0x10", "0x20"), ("v1.2.3", "v1.2.4")] {
            assert_ne!(rules.normal(one), rules.normal(other));
        }
    }

    #[test]
    fn values_are_compared_without_ignored_fields() {
        let rules = NormalRules::default();
        let normal = |value: Value| rules.normal_value(&value, &|text| rules.normal(text));
        let one = json!({ "stdout": "in 3 ms", "duration_seconds": 0.1, "list": [{ "version": 1, "n": 1 }] });
        let other = json!({ "stdout": "in 4 ms", "duration_seconds": 0.2, "list": [{ "version": 2, "n": 1 }] });
        assert_eq!(normal(one.clone()), normal(other));
        assert_ne!(normal(one), normal(json!({ "stdout": "in 3 ms", "list": [{ "n": 2 }] })));
    }

    #[test]
    fn own_rules_come_from_json() {
        let path = |path: &str| EntryPath::lookup(path).unwrap();
        let text =
            r#"{"texts": [{"pattern": "a+", "replace": "$0"}], "ignore_paths": ["/logs/**"], "ignore_fields": ["n"]}"#;
        let rules = NormalRules::bare().with_json(text).unwrap();
        assert_eq!(rules.normal("baaad"), "b$0d");
        assert!(rules.ignores(&path("logs/x/y")) && !rules.ignores(&path("log")) && !rules.ignores(&path("a.pyc")));
        assert!(NormalRules::default().ignores(&path("d/__pycache__/a.cpython-312.pyc")));
        for wrong in ["", "[]", "{\"text\": []}", "{\"texts\": [{\"pattern\": \"(\", \"replace\": \"\"}]}"] {
            assert!(NormalRules::bare().with_json(wrong).is_err(), "{wrong}");
        }
        let error = NormalRules::bare().with_json(r#"{"ignore_paths": ["a{"]}"#).unwrap_err();
        assert!(error.to_string().contains("\"a{\""), "{error}");
    }
}
