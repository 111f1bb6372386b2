//! A session in a container: requirements, a command, the container's events, leftovers.
//!
//! `cargo run --example containers` needs Podman or Docker; without them, it prints what is missing.

#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;

use foldspace::backends::{
    Container, DoctorReport, Finding, Leftover, Leftovers, MachineNews, OverlayUse, PodmanOptions, diagnose,
    find_engine, remove_leftovers,
};
use foldspace::event::{ContainerStarted, ContainerStopped};
use foldspace::tools::{CommandPolicy, PodmanShellTool, ShellRules};
use foldspace::{NewSession, PodmanSandbox, Registry, Sessions, ToolCall, ToolRunner, Tools, Workspace, WorkspaceSpec};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut missing = false;
    for Finding { what, state, found, advice } in diagnose(&PodmanOptions::default()) {
        println!("{what}: {found} {advice}");
        missing |= state == DoctorReport::Missing;
    }
    if missing {
        return Ok(());
    }

    let usual = PodmanOptions::usual(find_engine(None)?, None);
    let options = PodmanOptions { overlay: OverlayUse::Auto, memory_bytes: 256 << 20, ..usual };
    let directory = tempfile::tempdir()?;
    let sessions = Sessions::open(directory.path(), Registry::standard())?;
    let spec = WorkspaceSpec::Podman(options.clone());
    let new =
        NewSession { backend: Some(spec.backend_name().to_owned()), options: spec.options(), ..NewSession::default() };
    let session = sessions.create(new)?;
    let sandbox = Arc::new(PodmanSandbox::open(session.id(), &options)?);
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let rules = ShellRules { policy, ..ShellRules::default() };
    let tools = Tools::standard().with(PodmanShellTool)?;
    let runner = ToolRunner::with_rules(session, tools, Arc::clone(&sandbox) as Arc<dyn Workspace>, rules)?;
    let outcome = runner.call(ToolCall::new("shell_execute", json!({ "command": "id -u; echo hi > a.txt" }))).await?;
    println!("{:?}: {}", outcome.status, outcome.text);

    // The runner has recorded the container's start; its end is still to be reported.
    let container: Arc<dyn Container> = sandbox.container().ok_or("the sandbox has no container")?;
    container.stop()?;
    for news in sandbox.news() {
        match news {
            MachineNews::Started(ContainerStarted { name, image, .. }) => println!("{name} of {image} runs"),
            MachineNews::Stopped(ContainerStopped { name, reason }) => println!("{name} stopped: {reason}"),
            MachineNews::Connected(connection) => println!("it connected to {}", connection.host),
            MachineNews::Exchanged(request, _) => println!("it requested {}", request.url),
        }
    }
    runner.close()?;
    drop(runner);
    if let Some(sandbox) = Arc::into_inner(sandbox) {
        sandbox.remove_files()?;
    }
    let Leftovers { elsewhere, .. } = remove_leftovers(None, true)?;
    for Leftover { name, session, running } in elsewhere {
        println!("container {name} of session {session}, running: {running}");
    }
    Ok(())
}
