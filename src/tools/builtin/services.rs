//! Services: named processes that others wait for, and that can restart.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::engine::error::ValueError;
use crate::engine::event::ServiceStarted;
use crate::tools::call::context::ToolContext;
use crate::tools::call::error::ToolError;
use crate::tools::workspace::processes::{Process, ServiceLabel};

/// The longest time that a start waits for a service.
pub(super) const READY_MAX: Duration = Duration::from_secs(300);
const READY_USUAL: f64 = 30.0;
/// The pause between two checks: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The time after which a service without a check counts as started.
const STARTS: Duration = Duration::from_millis(200);
/// The bytes of output that a failed start shows.
const SHOWN: usize = 2000;

/// A service.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ServiceOptions")]
#[serde(deny_unknown_fields)]
pub struct ServiceParams {
    /// Its name: at most 64 letters, digits, `-`, `_` and `.`, no `-` or `.` first. Only one process of that name runs.
    name: String,
    /// The TCP port that it listens at. It is ready when the port accepts a connection.
    #[serde(default)]
    port: Option<u16>,
    /// A text that it prints when it is ready.
    #[serde(default)]
    prints: Option<String>,
    /// Seconds to wait until it is ready, at most 300; 30 by default.
    #[serde(default)]
    ready_seconds: Option<f64>,
    /// The services that must run before it.
    #[serde(default)]
    after: Vec<String>,
    /// True to start it again for the next command after a rewind, in a fork, and after a restart of foldspace.
    #[serde(default)]
    restart: bool,
}

impl ServiceParams {
    /// Checks that it can be started now.
    pub(super) async fn check(&self, context: &ToolContext) -> Result<(), ToolError> {
        let Self { name, port, after, .. } = self;
        let is_usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        // `-x` looks like an option, and `..` like a part of a path.
        if name.is_empty() || name.starts_with(['-', '.']) || name.len() > 64 || !name.chars().all(is_usual) {
            let what =
                "a service's name has 1 to 64 letters, digits, `-`, `_` and `.`, and begins with a letter or digit";
            return Err(ValueError::new(format!("{what}; this one is {name:.100?}")).into());
        }
        if *port == Some(0) {
            return Err(ValueError::new("a port is from 1 to 65535").into());
        }
        self.patience()?;
        if let Some(running) = context.service(name) {
            let number = running.number();
            return Err(ToolError::new(format!("the service {name} runs already, as process {number}")));
        }
        if let Some(needed) = after.iter().find(|needed| context.service(needed).is_none()) {
            return Err(ToolError::new(format!("{name} starts after {needed:.64}, which does not run")));
        }
        // Otherwise another server there would make it seem ready.
        match port {
            Some(port) if connects(context, *port).await => {
                Err(ToolError::new(format!("something listens at port {port} already, so {name} can't")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn label(&self) -> ServiceLabel {
        ServiceLabel { name: self.name.clone(), port: self.port, restart: self.restart }
    }

    fn patience(&self) -> Result<Duration, ValueError> {
        let seconds = self.ready_seconds.unwrap_or(READY_USUAL);
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= READY_MAX);
        time.ok_or_else(|| ValueError::new(format!("ready_seconds is {seconds}; it must be from 0 to 300")))
    }

    /// Records the start, and waits until it is ready. Returns false if it is not ready in time.
    pub(super) async fn start(self, context: &mut ToolContext, process: &Process) -> Result<bool, ToolError> {
        let until = Instant::now() + self.patience()?;
        let has_check = self.port.is_some() || self.prints.is_some();
        // A misspelled program ends at once.
        let mut pause = if has_check { Duration::ZERO } else { STARTS };
        let is_ready = loop {
            if tokio::time::timeout(pause, process.output.ended()).await.is_ok() {
                process.ended().await;
                return Err(self.ended_early(process));
            }
            if self.is_ready(context, process).await {
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
            pause = (pause * 2).clamp(PAUSE, PAUSE_MAX);
        };
        if is_ready {
            process.set_ready();
        }
        let Self { name, port, after, restart, .. } = self;
        context.record(&ServiceStarted { name, port, after, restart })?;
        Ok(is_ready)
    }

    async fn is_ready(&self, context: &ToolContext, process: &Process) -> bool {
        if let Some(text) = self.prints.as_deref().filter(|text| !text.is_empty()) {
            let printed = process.output.stretch(0, usize::MAX);
            let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
            if !has(&printed.stdout) && !has(&printed.stderr) {
                return false;
            }
        }
        match self.port {
            Some(port) => connects(context, port).await,
            None => true,
        }
    }

    fn ended_early(&self, process: &Process) -> ToolError {
        let printed = process.output.stretch(0, usize::MAX);
        let all = [printed.stdout, printed.stderr].concat();
        let shown = String::from_utf8_lossy(all.get(all.len().saturating_sub(SHOWN)..).unwrap_or(&all)).into_owned();
        let code = process.document().exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
        ToolError::new(format!("the service {} ended{code} before it was ready:\n{}", self.name, shown.trim_end()))
    }
}

/// Returns true if a port of the session accepts a connection.
async fn connects(context: &ToolContext, port: u16) -> bool {
    let container = context.workspace().container();
    let connect = move || match container {
        Some(container) => container.connect(port).is_ok(),
        None => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok(),
    };
    tokio::task::spawn_blocking(connect).await.unwrap_or_default()
}
