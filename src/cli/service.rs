use std::num::NonZeroU16;

use foldspace::SessionId;
use foldspace::http::{CallEvent, encoded};
use foldspace::hub::operations::ServiceDocument;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::calling::{self, Calling};
use super::exec::variable;
use super::live::LiveOutput;
use super::table::{Cell, TextTable};
use super::{Failure, Globals, Out, OwnerClient, RuleArgs, interrupt, open, output, text, workspace};

/// Starts and stops services: commands with a name that run in the background
///
/// A service outlives the command that starts it, until it is stopped, its session's workspace closes or the owner of
/// the store ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace service start demo db --prints 'ready to accept' -- ./run-db
  foldspace service start demo web --port 8000 --after db --restart \\
      -- python3 -m http.server 8000
  foldspace service logs demo web -f
  foldspace open demo 8000")]
pub(super) struct ServiceArgs {
    #[command(subcommand)]
    verb: ServiceVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ServiceVerb {
    Start(Box<ServiceStart>),
    List(ServiceList),
    Logs(ServiceLogs),
    Stop(ServiceStop),
}

/// Starts a service, and waits until it is ready
#[derive(Debug, clap::Args)]
#[command(mut_args(workspace::unasked))]
struct ServiceStart {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The name of the service
    name: String,
    /// The program and its arguments; options of `start` come before it
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
    /// Joins the arguments and runs them with /bin/sh -c
    #[arg(long)]
    sh: bool,
    /// The port that it listens at: it is ready when the port accepts a connection
    #[arg(long)]
    port: Option<NonZeroU16>,
    /// A text that it prints when it is ready
    #[arg(long, value_name = "TEXT")]
    prints: Option<String>,
    /// Waits at most that long until it is ready, 0 to 300 seconds
    #[arg(long, value_name = "SECS", default_value_t = 30.0)]
    wait: f64,
    /// A service that must run before it; may be given several times
    #[arg(long, value_name = "NAME")]
    after: Vec<String>,
    /// Starts it again after a rewind, in a fork, and after a restart of the owner, for the next command or connection
    #[arg(long)]
    restart: bool,
    /// The working directory, in the workspace [default: the session's --workdir, else /]
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    cwd: String,
    /// Sets a variable; may be given several times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The agent that starts it
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    #[command(flatten)]
    rules: RuleArgs,
}

/// Lists the services of a session
#[derive(Debug, clap::Args)]
struct ServiceList {
    /// The session, by name or by the beginning of its id
    session: String,
}

/// Prints the output of a service, at most the last MiB
#[derive(Debug, clap::Args)]
struct ServiceLogs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The name of the service
    name: String,
    /// Follows the output until the service ends
    #[arg(short, long)]
    follow: bool,
}

/// Stops a service: with TERM, and after 10 seconds with KILL
#[derive(Debug, clap::Args)]
struct ServiceStop {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The name of the service
    name: String,
}

impl ServiceArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let done = match &self.verb {
                ServiceVerb::Start(start) => start.run(&owner, globals, out).await,
                ServiceVerb::List(list) => list.run(&owner, globals, out).await,
                ServiceVerb::Logs(logs) => logs.run(&owner, globals, out).await,
                ServiceVerb::Stop(stop) => stop.run(&owner, globals, out).await,
            };
            owner.end().await;
            done
        })?
    }
}

fn id_of(globals: &Globals, session: &str) -> Result<SessionId, Failure> {
    Ok(open::reading(globals)?.find(session)?.session.id())
}

impl ServiceStart {
    async fn run(&self, owner: &OwnerClient, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        if globals.in_process {
            return Err(Failure::usage("a service ends with its owner: start it without --in-process"));
        }
        let rules = self.rules.typed()?;
        workspace::check_runs_commands(&owner.sessions()?.find(&self.session)?.session)?;
        let session = id_of(globals, &self.session)?.to_string();
        let request = calling::request("process_start", self.params(), self.agent.as_deref(), &rules);
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), owner.closing());
        let (client, session, name) = (&owner.client, session.as_str(), self.session.as_str());
        let call = Calling { client, session, name, request, rules: &rules, cancel };
        let outcome = call.make(None, output::progress).await?;
        if !outcome.is_ok() {
            return Err(Failure::failed(outcome.text));
        }
        out.show(&json!({ "name": self.name, "process": outcome.call, "ready": outcome.result["ready"] }), |out| {
            let ready = match outcome.result["ready"].as_bool() {
                Some(true) => "runs and is ready".to_owned(),
                _ => format!("runs, and is not ready after {} s", self.wait),
            };
            out.line(format!("{} {ready} (process {})", self.name, outcome.call))
        })
    }

    fn params(&self) -> Value {
        let command = if self.sh { json!(self.command.join(" ")) } else { json!(self.command) };
        let env: serde_json::Map<_, _> = self.env.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let Self { name, port, prints, wait, after, restart, .. } = self;
        let service = json!({
            "name": name, "port": port, "prints": prints, "ready_seconds": wait, "after": after, "restart": restart,
        });
        json!({ "command": command, "cwd": self.cwd, "env": env, "service": service })
    }
}

impl ServiceList {
    async fn run(&self, owner: &OwnerClient, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let session = id_of(globals, &self.session)?;
        let all: Vec<ServiceDocument> = owner.client.get(&format!("/v1/sessions/{session}/services")).await?;
        out.show(&json!(all), |out| {
            if all.is_empty() {
                return out.line(format!("{} has no services", text::one_line(&self.session, 80)));
            }
            let mut table = TextTable::with_titles(&["service", ">process", ">port", "state", "starts after"]);
            for service in &all {
                let state = match (service.running, service.restart) {
                    (true, true) => "runs, restarts",
                    (true, false) => "runs",
                    (false, true) => "does not run, restarts",
                    (false, false) => "does not run",
                };
                table.row([
                    Cell::left(&service.name),
                    Cell::right(service.process),
                    Cell::right(service.port.map(|port| port.to_string()).unwrap_or_default()),
                    Cell::left(state),
                    Cell::left(service.after.join(", ")),
                ]);
            }
            table.show(out)
        })
    }
}

impl ServiceLogs {
    async fn run(&self, owner: &OwnerClient, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let session = id_of(globals, &self.session)?;
        let all: Vec<ServiceDocument> = owner.client.get(&format!("/v1/sessions/{session}/services")).await?;
        let missing = || Failure::missing(format!("{} has no service {}", self.session, self.name));
        let service = all.into_iter().find(|service| service.name == self.name).ok_or_else(missing)?;
        out.go_live()?;
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), owner.closing());
        let mut live = LiveOutput::begin(&cancel)?;
        let mut events = owner.client.follow_process(&session.to_string(), service.process, self.follow).await?;
        while let Some(event) = tokio::select! {
            event = events.next() => event?,
            () = cancel.cancelled() => None,
        } {
            match event {
                CallEvent::Output { stream, bytes } => live.show(stream, bytes).await,
                CallEvent::Missed(bytes) => output::note(&format!("{bytes} earlier bytes are no longer retained")),
                _ => {}
            }
        }
        live.end().await
    }
}

impl ServiceStop {
    async fn run(&self, owner: &OwnerClient, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let session = id_of(globals, &self.session)?;
        owner.client.delete(&format!("/v1/sessions/{session}/services/{}", encoded(&self.name))).await?;
        out.show(&json!({ "name": self.name }), |out| out.line(format!("stopped {}", self.name)))
    }
}
