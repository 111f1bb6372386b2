//! Output and exit code of a command, as recorded by any program.

use serde_json::Value;

use crate::engine::event::CallFinished;

/// Text of Gemini CLI around an output.
const FRAME: [&str; 2] = ["<untrusted_context>\n", "\n</untrusted_context>"];
const BEHIND: [&str; 4] = ["\nExit Code: ", "\nProcess Group PGID: ", "\nBackground PIDs: ", "\nSignal: "];
/// Placeholders of agents for empty output.
const NOTHING: [&str; 2] = ["(empty)", "(Bash completed with no output)"];

/// The end of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ForeignOutcome {
    /// The output; `None` if it is incomplete or unknown.
    pub(crate) output: Option<String>,
    pub(crate) exit_code: Option<i64>,
}

impl ForeignOutcome {
    pub(crate) fn of(end: &CallFinished) -> Self {
        let result = &end.result;
        let is_cut = result["truncated"] == true;
        let stdout = result["stdout"].as_str();
        let output = match stdout {
            Some(stdout) => Some([stdout, result["stderr"].as_str().unwrap_or_default()].concat()),
            None => [result, &result["output"], &result["content"]].into_iter().find_map(Value::as_str).map(unframed),
        };
        let is_whole = |output: &String| !is_cut && !output.lines().any(|line| line.contains(" truncated"));
        // Claude Code reports only exit codes other than 0.
        let silent = stdout.filter(|_| !result["interrupted"].is_null()).map(|_| 0);
        Self { output: output.filter(is_whole), exit_code: result["exit_code"].as_i64().or(silent) }
    }
}

/// Returns the output without the frame of Codex or Gemini CLI.
fn unframed(shown: &str) -> String {
    let inner = shown.strip_prefix(FRAME[0]).and_then(|shown| shown.strip_suffix(FRAME[1])).unwrap_or(shown);
    let is_headed = ["Chunk ID: ", "Exit code: ", "Wall time: "].iter().any(|head| inner.starts_with(head));
    let output = match inner.split_once("\nOutput:\n") {
        Some((_, output)) if is_headed => output,
        _ => match inner.strip_prefix("Output: ") {
            Some(output) => {
                let ends = BEHIND.iter().filter_map(|behind| output.rfind(behind));
                &output[..ends.min().unwrap_or(output.len())]
            }
            None => inner,
        },
    };
    if NOTHING.contains(&output) { String::new() } else { output.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::event::CallStatus;

    #[test]
    fn outcome_is_read_in_each_format() {
        let of = |result: Value| {
            let message = String::new();
            ForeignOutcome::of(&CallFinished { status: CallStatus::Ok, result, message, micros: 1, reason: None })
        };
        let is = |output: &str, exit_code| ForeignOutcome { output: Some(output.to_owned()), exit_code };
        assert_eq!(of(json!({ "stdout": "a\n", "stderr": "b", "interrupted": false })), is("a\nb", Some(0)));
        assert_eq!(of(json!({ "stdout": "a\n", "exit_code": 2, "truncated": false })), is("a\n", Some(2)));
        assert_eq!(of(json!({ "content": "(Bash completed with no output)" })), is("", None));
        let codex = "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\noops\n";
        assert_eq!(of(json!({ "output": codex, "exit_code": 3 })), is("oops\n", Some(3)));
        let gemini = "<untrusted_context>\nOutput: oops\nExit Code: 3\nProcess Group PGID: 1947\n</untrusted_context>";
        assert_eq!(of(json!({ "output": gemini, "exit_code": 3 })), is("oops", Some(3)));
        let empty = "<untrusted_context>\nOutput: (empty)\nProcess Group PGID: 804\n</untrusted_context>";
        assert_eq!(of(json!({ "output": empty })), is("", None));
        assert_eq!(of(json!({ "output": "a\n...12 lines truncated...\nb" })), ForeignOutcome::default());
        assert_eq!(of(Value::Null), ForeignOutcome::default());
    }
}
