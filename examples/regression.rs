//! Finds a regression by bisection, and compares a later run with a correct one.
//!
//! `cargo run --example regression`

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use foldspace::backends::{Below, HostOptions, MockAnswer, MockOptions, MockRule, ShellCommand, Throwaway};
use foldspace::reducers::Allowances;
use foldspace::tools::{
    ApprovalAnswer, Asker, Asking, BisectReport, Bisection, CallReport, CallVerdict, CallWatch, CommandPolicy,
    CommandQuestion, Divergence, EditTool, Expectation, GrepTool, ProbeRecord, PythonTool, RemoveTool, Rerun,
    RerunReport, RerunWorkspace, Scratch, ShellRules, ShellTool, bisect,
};
use foldspace::{EntryPath, NewSession, Registry, Session, Sessions, ToolCall, ToolRunner, Tools, WorkspaceSpec};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Allows every program for the rest of the session.
struct Trusting;

impl Asker for Trusting {
    fn ask(&self, _: CommandQuestion) -> Asking {
        Box::pin(async { ApprovalAnswer::Session })
    }
}

/// A mock that knows one command.
fn mock(printed: &str) -> WorkspaceSpec {
    let rule = MockRule { command: "make*".to_owned(), answer: MockAnswer::printing(printed) };
    WorkspaceSpec::Mock(MockOptions { answers: vec![rule], ..MockOptions::default() })
}

fn tools() -> Result<Tools, Box<dyn Error>> {
    let tools = Tools::standard();
    println!("{} tools", tools.names().count());
    Ok(Tools::new().with(EditTool)?.with(GrepTool)?.with(RemoveTool)?.with(PythonTool)?.with(ShellTool)?)
}

async fn recorded(sessions: &Sessions, home: &Path, printed: &str) -> Result<Session, Box<dyn Error>> {
    let spec = mock(printed);
    let session = sessions.create(NewSession { options: spec.options(), ..NewSession::default() })?;
    let workspace = spec.open(session.id(), home)?;
    let rules = ShellRules { asker: Some(Arc::new(Trusting)), ..ShellRules::default() };
    let runner = ToolRunner::with_rules(session.clone(), Tools::standard(), workspace, rules)?;
    let write = |text: &str| ("write_file", json!({ "file_path": "limit.txt", "content": text }));
    let edit =
        |old: &str, new: &str| ("edit_file", json!({ "file_path": "limit.txt", "old_string": old, "new_string": new }));
    let make: (&str, Value) = ("shell_execute", json!({ "command": "make" }));
    for (tool, params) in [write("10\n"), edit("10", "12"), make, edit("12", "99"), edit("99", "98")] {
        runner.call(ToolCall::new(tool, params)).await?;
    }
    if let Some(Allowances { programs, .. }) = session.state()?.slice() {
        println!("allowed in {}: {programs:?}", session.name());
    }
    runner.close()?;
    Ok(session)
}

fn print_calls(RerunReport { calls, .. }: &RerunReport) {
    for CallReport { tool, verdict, .. } in calls {
        match verdict {
            CallVerdict::Diverged { divergences } => {
                for divergence in divergences {
                    match divergence {
                        Divergence::Message { was, is } => println!("{tool}: message was {was:?}, is {is:?}"),
                        Divergence::File { change } => println!("{tool}: file differs: {change:?}"),
                        other => println!("{tool}: {other:?}"),
                    }
                }
            }
            verdict => println!("{tool}: {verdict:?}"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path().join("data"), Registry::standard())?;
    let (right, home) = (recorded(&sessions, directory.path(), "ok\n").await?, directory.path().to_owned());

    // The first change after which a command fails, tried in temporary directories.
    let command = ShellCommand::shell("test $(cat limit.txt) -lt 50");
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let rules = ShellRules { policy, ..ShellRules::default() };
    let spec = WorkspaceSpec::Host(HostOptions::default());
    let (good, bad) = (4, right.head()?);
    let search = Bisection { session: right.clone(), spec: spec.clone(), home, command, rules, good, bad, jobs: 1 };
    let seen = |ProbeRecord { seq, verdict, .. }: &ProbeRecord| println!("at {seq}: {verdict:?}");
    let BisectReport { found, probes, .. } = bisect(&search, &seen, &CancellationToken::new()).await?;
    println!("the first bad change is {:?}, found by {} probes", found.bad, probes.len());

    // Compares another run with the correct one.
    let other = recorded(&sessions, directory.path(), "1 warning\n").await?;
    print_calls(&Expectation::of(&right).compare(&other, 0, &[])?);

    // Reruns the calls, with other answers and fewer tools.
    let scratch = Scratch::begin(Registry::standard(), &mock("ok, again\n"), "again")?;
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let fresh = RerunWorkspace {
        session: scratch.session().clone(),
        workspace: scratch.workspace().clone(),
        tools: Arc::new(tools()?),
        rules: ShellRules { policy, ..ShellRules::default() },
        cancel: CancellationToken::new(),
    };
    let watch: CallWatch<'_> = &mut |report| println!("reran {}", report.tool);
    print_calls(&Rerun::of(&right).run(fresh, watch).await?);

    // A workspace without a session, removed on drop.
    let throwaway = Throwaway::open(&spec, directory.path())?;
    if let Some(detector) = throwaway.workspace().and_then(|workspace| workspace.capture()) {
        let Below { entries, .. } = detector.below(&EntryPath::root())?;
        println!("{} entries in a throw-away workspace", entries.len());
    }
    Ok(())
}
