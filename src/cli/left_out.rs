//! Commands and options of features that this build lacks.

use foldspace::backends::{DoctorReport, Finding, PythonEvaluator};

use super::Failure;

/// Features that a build may lack, with the commands and options that need each.
const FEATURES: [(&str, bool, &[&str]); 8] = [
    ("e2b", cfg!(feature = "e2b"), &["--e2b", "--e2b-remove", "--e2b-debug"]),
    ("inspect", cfg!(feature = "inspect"), &[]),
    ("man", cfg!(feature = "man"), &["man"]),
    ("mcp", cfg!(feature = "mcp"), &["mcp", "serve"]),
    ("nats", cfg!(feature = "nats"), &[]),
    ("replicate", cfg!(feature = "replicate"), &["replicate", "restore", "--replicate-to"]),
    ("seal", cfg!(feature = "seal"), &["seal", "--checkpoint", "--proof"]),
    ("tui", cfg!(feature = "tui"), &["replay"]),
];
const HOW: &str = "cargo install --locked --path . --features full";

/// Explains a command or an option that needs a feature which this build lacks; `None` for any other text.
pub(super) fn needing(given: &str) -> Option<Failure> {
    let name = given.split('=').next().unwrap_or(given);
    let (feature, ..) = FEATURES.iter().find(|(_, is_built, needing)| !is_built && needing.contains(&name))?;
    let failure =
        Failure::usage(format!("`{name}` needs the feature `{feature}`, and this program is built without it"));
    Some(failure.with_hint(format!("in a clone of foldspace: {HOW}")))
}

/// Lists the features that this build lacks, and the state of the Python evaluator.
pub(super) fn findings() -> Vec<Finding> {
    let lacking: Vec<&str> =
        FEATURES.iter().filter(|(_, is_built, _)| !is_built).map(|(feature, ..)| *feature).collect();
    let features = match lacking.is_empty() {
        true => finding("features", DoctorReport::Ok, "all".to_owned(), ""),
        false => finding("features", DoctorReport::Limited, format!("without {}", lacking.join(", ")), HOW),
    };
    let python = match PythonEvaluator::program() {
        Some(program) => finding("evaluator", DoctorReport::Ok, program.display().to_string(), ""),
        None => finding(
            "evaluator",
            DoctorReport::Limited,
            "foldspace-evaluator is not installed: evaluate_python runs in containers only".to_owned(),
            "cargo install --locked --path src/evaluator",
        ),
    };
    vec![features, python]
}

fn finding(what: &'static str, state: DoctorReport, found: String, advice: &str) -> Finding {
    Finding { what, state, found, advice: advice.to_owned() }
}
