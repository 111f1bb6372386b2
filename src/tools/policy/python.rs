//! Rules for `evaluate_python`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backends::PythonEvaluator;

/// Place where `evaluate_python` runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PythonPlace {
    /// In a process of this program, which reaches nothing but what it is given; without the most of Python's library.
    InProcess,
    /// By python3 in the workspace's shell: in its container. Where there is none, it runs as any other command.
    Container,
}

impl PythonPlace {
    /// Returns the word for it in options and events.
    pub fn word(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Container => "container",
        }
    }
}

/// Rules of a tool runner for `evaluate_python`.
///
/// ```
/// use foldspace::tools::{PythonPlace, PythonRules, ShellRules};
/// let python = PythonRules { place: Some(PythonPlace::Container), ..PythonRules::default() };
/// let rules = ShellRules { python, ..ShellRules::default() };
/// assert_eq!((rules.python.code_chars, PythonPlace::InProcess.word()), (2000, "in-process"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonRules {
    /// Place where code runs. By default it is the container of a session that has one, and in process for others.
    pub place: Option<PythonPlace>,
    /// Characters that code in process may have; at most 48,000.
    pub code_chars: usize,
}

impl Default for PythonRules {
    fn default() -> Self {
        Self { place: None, code_chars: 2000 }
    }
}

impl PythonRules {
    /// Returns the place that is named, or the usual one for a shell that is sandboxed or not, or for no shell: a host's
    /// commands have no sandbox, and the process has one.
    pub(crate) fn place_beside(&self, is_sandboxed: Option<bool>) -> PythonPlace {
        let usual = match is_sandboxed {
            Some(true) => PythonPlace::Container,
            Some(false) if PythonEvaluator::program().is_none() => PythonPlace::Container,
            Some(false) | None => PythonPlace::InProcess,
        };
        self.place.unwrap_or(usual)
    }
}
