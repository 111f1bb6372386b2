//! The daemon that a command on the host needs when it runs `docker` or `podman`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::approval::Decided;
use super::error::ToolError;
use super::shell::ToolShell;
use crate::backends::{CallerProcess, ShellCommand, name_and_value};
use crate::tools::policy::{CommandPolicy, Decision, program_among};

/// Clients that need a daemon, and the program that queries it.
const CLIENTS: [(&str, &str); 3] = [("docker", "docker"), ("docker-compose", "docker"), ("podman", "podman")];
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const ASKED_EVERY: Duration = Duration::from_millis(300);

impl ToolShell<'_> {
    /// Checks the daemon that a command on the host needs, starts it if configured, and returns a note for the caller.
    /// The command runs in any case, since not everything these programs do needs a daemon.
    pub(super) async fn see_to_daemon(&mut self, command: &ShellCommand) -> Result<Option<String>, ToolError> {
        let properties = self.properties();
        if properties.sandboxed || properties.in_container {
            return Ok(None);
        }
        let Some((client, variables)) = program_among(&command.command, &CLIENTS.map(|(client, _)| client)) else {
            return Ok(None);
        };
        let asks = CLIENTS.iter().find(|(known, _)| *known == client).map_or(client.as_str(), |(_, asks)| asks);
        let mut version = ShellCommand::args([asks, "version"]);
        version.env = command.env.clone();
        version.env.extend(variables);
        version.env_mode = command.env_mode;
        version.timeout = Some(ANSWERS_WITHIN);
        if self.answers(&version).await? {
            return Ok(None);
        }
        let absent = format!("the daemon of {asks} does not answer");
        let Some(start) = self.rules().start_docker.clone().filter(|_| asks == "docker") else {
            let remedy = match asks {
                "docker" => "`systemctl start docker`, or let foldspace start it (start_docker)",
                _ => "`systemctl start podman.socket`",
            };
            return Ok(Some(format!("{absent}; start it with {remedy}")));
        };
        let text = ShellCommand::shell(&*start);
        // The configured command needs no approval; denials still apply.
        let policy = CommandPolicy { auto_confirm: true, ..self.rules().policy.clone() };
        let denied = match policy.check(&text, &Default::default()) {
            Decision::Deny { reason } => Some(reason),
            _ => None,
        };
        self.record_decision(&text, None, Decided::beforehand(denied.clone()))?;
        if let Some(reason) = denied {
            return Ok(Some(format!("{absent}, and `{start}` may not start it: {reason}")));
        }
        self.begin(&[]).await?;
        tracing::info!(command = &*start, "starting the Docker daemon");
        let ended = match spawn(&start, self.caller()?.as_deref()) {
            Ok(child) => self.wait_for(child, &version).await?,
            Err(error) => Some(format!("can't be run: {error}")),
        };
        Ok(Some(match ended {
            None => format!("the daemon of {asks} did not answer and was started by `{start}`"),
            Some(what) => format!("{absent}; `{start}` {what}"),
        }))
    }

    /// Returns true if the client's daemon answers, or the client is not installed.
    async fn answers(&self, version: &ShellCommand) -> Result<bool, ToolError> {
        let asked = self.aside(version.clone()).await?;
        if asked.cancelled { Err(ToolError::Cancelled) } else { Ok(asked.success() || asked.exit_code == 127) }
    }

    /// Waits until the daemon answers. Returns the reason if it does not.
    async fn wait_for(&mut self, mut starting: Child, version: &ShellCommand) -> Result<Option<String>, ToolError> {
        let waited = tokio::time::timeout(STARTS_WITHIN, self.until_answers(&mut starting, version)).await;
        reap(starting);
        waited.unwrap_or_else(|_| Ok(Some(format!("was run, but nothing answers after {} s", STARTS_WITHIN.as_secs()))))
    }

    async fn until_answers(&self, starting: &mut Child, version: &ShellCommand) -> Result<Option<String>, ToolError> {
        let mut failed = None;
        loop {
            if self.answers(version).await? {
                return Ok(None);
            }
            if failed.is_some() {
                return Ok(failed);
            }
            match starting.try_wait() {
                // Ask once more: the daemon may have come up in between.
                Ok(Some(status)) if !status.success() => failed = Some(format!("failed: {status}")),
                _ => tokio::time::sleep(ASKED_EVERY).await,
            }
        }
    }
}

/// Starts the daemon outside of the runner, since it outlives the command that needed it.
#[expect(clippy::disallowed_methods, reason = "a daemon outlives the runner, which ends all processes of a command")]
fn spawn(start: &str, caller: Option<&CallerProcess>) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", start]).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(caller) = caller {
        command.env_clear().envs(caller.environ.iter().filter_map(|variable| name_and_value(variable)));
    }
    command.spawn()
}

/// Reaps a process when it ends, however long it lives.
fn reap(mut child: Child) {
    let waiting = std::thread::Builder::new().name("daemon".to_owned()).spawn(move || child.wait());
    if let Err(error) = waiting {
        tracing::warn!(%error, "no thread to reap the process that started the daemon");
    }
}
