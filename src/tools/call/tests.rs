//! Calls: their reads of the state, and the effects that they report.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::context::ToolContext;
use super::error::ToolError;
use super::tool::{Effect, Tool};
use super::tool_call::ToolCall;
use super::tool_runner::ToolRunner;
use crate::backends::{HostOptions, WorkspaceSpec};
use crate::engine::event::{EffectOutcome, EffectSource, ExternalEffect};
use crate::engine::registry::Registry;
use crate::engine::session::sessions::{NewSession, Sessions};
use crate::reducers::Effects;
use crate::tools::Tools;

/// A runner on a host directory that has made some calls.
async fn warm_runner(directory: &Path) -> ToolRunner {
    let sessions = Sessions::open(directory, Registry::standard()).unwrap();
    let session = sessions.create(NewSession { backend: Some("host".to_owned()), ..NewSession::default() }).unwrap();
    let workspace = WorkspaceSpec::Host(HostOptions::default()).open(session.id(), directory).unwrap();
    let runner = ToolRunner::new(session, Tools::standard(), workspace).unwrap();
    for text in ["one\n", "two\n"] {
        write(&runner, text, "overwrite").await;
    }
    runner
}

async fn write(runner: &ToolRunner, text: &str, mode: &str) {
    let params = json!({ "file_path": "notes.txt", "content": text, "mode": mode });
    let outcome = runner.call(ToolCall::new("write_file", params)).await.unwrap();
    assert!(outcome.is_ok(), "{}", outcome.text);
}

async fn text(runner: &ToolRunner, path: &str) -> String {
    let outcome = runner.call(ToolCall::new("read_file", json!({ "file_path": path }))).await.unwrap();
    assert!(outcome.is_ok(), "{}", outcome.text);
    outcome.text
}

/// Returns the states that were read and the slices that were opened since `before`.
fn reads_since(runner: &ToolRunner, before: (u64, u64)) -> (u64, u64) {
    let (states, slices) = runner.session().state_reads();
    (states - before.0, slices - before.1)
}

#[tokio::test]
async fn warm_write_reads_one_state() {
    let directory = tempfile::tempdir().unwrap();
    let runner = warm_runner(directory.path()).await;
    let before = runner.session().state_reads();
    write(&runner, "three\n", "overwrite").await;
    // The slices that each write changes: files, calls, usage.
    assert_eq!(reads_since(&runner, before), (1, 3));
}

#[tokio::test]
async fn call_after_other_call_appends_to_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let runner = warm_runner(directory.path()).await;
    let before = runner.session().state_reads();
    tokio::join!(write(&runner, "three\n", "append"), write(&runner, "four\n", "append"));
    // A second call that waits for the first reads the state again.
    let (reads, _) = reads_since(&runner, before);
    assert!((2..=3).contains(&reads), "{reads} reads");
    let text = text(&runner, "notes.txt").await;
    assert!(text.contains("two") && text.contains("three") && text.contains("four"), "{text}");
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "another program writes the file")]
async fn call_after_external_change_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let runner = warm_runner(directory.path()).await;
    let root = runner.workspace().root().unwrap();
    std::fs::write(Path::new(&root).join("external.txt"), "from outside\n").unwrap();
    let before = runner.session().state_reads();
    assert!(text(&runner, "external.txt").await.contains("from outside"));
    // The scan recorded a change, so the call reads the state again.
    assert_eq!(reads_since(&runner, before).0, 2);
}

/// A tool that sends a mail, and then fails.
struct Mailer;

impl Tool for Mailer {
    const NAME: &'static str = "mailer";
    const DESCRIPTION: &'static str = "Sends a mail.";
    const EFFECT: Effect = Effect::ReadOnly;
    type Params = serde_json::Map<String, Value>;
    type Output = ();

    async fn call(&self, context: &mut ToolContext, _: Self::Params) -> Result<(), ToolError> {
        let (what, target) = ("mail".to_owned(), "https://me:secret@example.com/a?b=c".to_owned());
        let (outcome, by) = (EffectOutcome::Done, EffectSource::Report);
        context.effect(&ExternalEffect { what, target, outcome, undo: String::new(), by, of: None })?;
        Err(ToolError::new("the receipt is missing"))
    }
}

#[tokio::test]
async fn effect_of_a_tool_is_recorded_though_it_fails() {
    let directory = tempfile::tempdir().unwrap();
    let runner = warm_runner(directory.path()).await.with_tool(Mailer::NAME, Arc::new(Mailer));
    let outcome = runner.call(ToolCall::new(Mailer::NAME, json!({}))).await.unwrap();
    assert!(!outcome.is_ok());
    let state = runner.session().state().unwrap();
    let [effect] = &state.slice::<Effects>().unwrap().entries[..] else { panic!("one effect") };
    assert_eq!((effect.words().as_str(), effect.call), ("mail https://example.com/a", Some(outcome.call)));
    assert_eq!(effect.outcome, EffectOutcome::Done);
}
