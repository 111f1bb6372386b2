use std::io::Read;

use foldspace::Seq;
use foldspace::hub::operations::RecordedRange;
use serde_json::{Value, json};

use super::{Failure, Globals, Out, OwnerClient, open, workspace};

/// Limit for the input, in bytes.
const INPUT_MAX: u64 = 64 << 20;

/// Records events of your own kinds
///
/// A kind has letters, digits, `.`, `_`, `-` or `/`, and begins with a lower-case letter. Every list of events shows
/// them; `foldspace reducer` folds them into slices of your own.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace emit demo plan.step '{\"id\": 1, \"status\": \"done\"}'
  foldspace emit demo --lines < events.jsonl    {\"kind\": .., \"data\": ..} lines
  foldspace emit demo test.failed '\"test_sum\"' --call 42")]
pub(super) struct Emit {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The kind of the event
    #[arg(required_unless_present = "lines", conflicts_with = "lines")]
    kind: Option<String>,
    /// Its data as JSON; `-` reads it from standard input [default: null]
    #[arg(value_name = "DATA", allow_hyphen_values = true)]
    value: Option<String>,
    /// Reads an event from each line of standard input: an object with `kind` and `data`
    #[arg(long)]
    lines: bool,
    /// The call that the events belong to
    #[arg(long, value_name = "CALL")]
    call: Option<Seq>,
    /// The agent or program that records the events
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// An id for retries, 1 to 200 bytes: events with the same id are recorded once
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
}

impl Emit {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let (call, agent, id) = (self.call, &self.agent, &self.call_id);
        let mut body = json!({ "call": call, "agent": agent, "call_id": id });
        match &self.kind {
            Some(kind) => {
                body["kind"] = json!(kind);
                body["data"] = self.value()?;
            }
            None => body["events"] = lines(&input()?)?,
        }
        let recorded: RecordedRange = super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let id = open::reading(globals)?.find(&self.session)?.session.id();
            let recorded = owner.client.post(&format!("/v1/sessions/{id}/events"), &body).await;
            owner.end().await;
            Ok::<_, Failure>(recorded?)
        })??;
        out.show(&recorded, |out| match recorded.last - recorded.first {
            0 => out.line(format!("recorded event {}", recorded.first)),
            _ => out.line(format!("recorded events {} to {}", recorded.first, recorded.last)),
        })
    }

    fn value(&self) -> Result<Value, Failure> {
        match self.value.as_deref() {
            None => Ok(Value::Null),
            Some("-") => json_of("the input", &input()?),
            Some(text) => json_of("DATA", text),
        }
    }
}

fn lines(text: &str) -> Result<Value, Failure> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(number, line)| json_of(&format!("line {}", number + 1), line)).collect()
}

pub(super) fn json_of(what: &str, text: &str) -> Result<Value, Failure> {
    let wrong = |error: serde_json::Error| Failure::usage(format!("{what} is not JSON: {error}"));
    let hint = "JSON strings have double quotes: '\"text\"'";
    serde_json::from_str(text).map_err(|error| wrong(error).with_hint(hint))
}

/// Reads JSON from a file; `-` is standard input.
pub(super) fn json_file(file: &std::path::Path) -> Result<Value, Failure> {
    json_of(&file.display().to_string(), &text_file(file)?)
}

/// Reads a text from a file, or from standard input for `-`.
#[expect(clippy::disallowed_methods, reason = "a declaration or a policy is a file of the user's")]
pub(super) fn text_file(file: &std::path::Path) -> Result<String, Failure> {
    let wrong = |error| Failure::usage(format!("cannot read {}: {error}", file.display()));
    if file.to_str() == Some("-") { input() } else { std::fs::read_to_string(file).map_err(wrong) }
}

/// Reads standard input as text.
fn input() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(INPUT_MAX + 1).read_to_string(&mut text);
    match read {
        Err(error) => Err(Failure::usage(format!("standard input can't be read: {error}"))),
        Ok(bytes) if bytes as u64 > INPUT_MAX => {
            Err(Failure::usage(format!("standard input has more than {} MiB", INPUT_MAX >> 20)))
        }
        Ok(_) => Ok(text),
    }
}
