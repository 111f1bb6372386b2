//! The rules for `evaluate_python`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backends::PythonEvaluator;

/// Place where `evaluate_python` runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PythonPlace {
    /// In a process of foldspace that can reach only its inputs, without most of Python's standard library.
    InProcess,
    /// With python3 in the workspace's shell, in its container. Without a container, it runs like any other command.
    Container,
}

impl PythonPlace {
    /// Returns the place's name in options and events.
    pub fn word(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Container => "container",
        }
    }
}

/// A tool runner's rules for `evaluate_python`.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::tools::{PythonPlace, PythonRules, ShellRules};
/// let python = PythonRules { place: Some(PythonPlace::Container), ..PythonRules::default() };
/// let rules = ShellRules { python, ..ShellRules::default() };
/// assert_eq!((rules.python.code_chars, PythonPlace::InProcess.word()), (2000, "in-process"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonRules {
    /// The place where code runs. By default, the session's container if it has one, else in process.
    pub place: Option<PythonPlace>,
    /// The limit for the characters of code in process, at most 48,000.
    pub code_chars: usize,
}

impl Default for PythonRules {
    fn default() -> Self {
        Self { place: None, code_chars: 2000 }
    }
}

impl PythonRules {
    /// Returns the configured place, or the default for a sandboxed shell, an unsandboxed shell or no shell. The
    /// default prefers a sandbox: the process has one, and commands on the host do not.
    pub(crate) fn place_beside(&self, is_sandboxed: Option<bool>) -> PythonPlace {
        let usual = match is_sandboxed {
            Some(true) => PythonPlace::Container,
            Some(false) if PythonEvaluator::program().is_none() => PythonPlace::Container,
            Some(false) | None => PythonPlace::InProcess,
        };
        self.place.unwrap_or(usual)
    }
}
