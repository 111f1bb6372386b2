//! Imports runs that other programs recorded, such as transcripts of coding agents and evaluations, as sessions.

mod aider;
mod atif;
pub(super) mod call_events;
pub(super) mod claude;
mod codex;
pub(super) mod copilot;
mod document_file;
mod documents;
pub(super) mod edits;
mod error;
pub(crate) mod exit_codes;
mod family;
pub(super) mod files;
pub(super) mod gemini;
mod inspect;
mod json_piece;
mod messages;
mod mini;
mod opencode;
mod openhands;
mod recorder;
mod said;
#[cfg_attr(not(feature = "inspect"), path = "no_sample_archive.rs")]
mod sample_archive;
mod source;
pub(super) mod stated;
pub(super) mod step;
mod swe_agent;
pub(super) mod tool_access;
mod traces;
mod trajectory;

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use error::TranscriptError;
use recorder::RunRecorder;
pub use said::{MessageRole, MessageUsage, SaidText, as_typed, said, usage_of};
use source::FoundRuns;
use step::StepReceiver;
pub use traces::traces_of;
pub use trajectory::trajectory_of;

use crate::engine::clock::Timestamp;
use crate::engine::id::{Digest, Seq, SessionId};
use crate::engine::portable::copy_session;
use crate::engine::session::sessions::Sessions;

/// The format of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TranscriptFormat {
    /// The Agent Trajectory Interchange Format, 1.4 to 1.9.
    Atif,
    /// Claude Code's transcripts.
    ClaudeCode,
    /// Codex CLI's rollouts.
    Codex,
    /// Gemini CLI's chats.
    GeminiCli,
    /// Trajectories of mini-swe-agent, 1 and 2.
    MiniSweAgent,
    /// Trajectories of SWE-agent.
    SweAgent,
    /// Conversations of OpenHands, version 1.
    OpenHands,
    /// Logs of Inspect.
    Inspect,
    /// Copilot CLI's events.
    CopilotCli,
    /// Sessions that OpenCode exports.
    #[serde(rename = "opencode")]
    OpenCode,
    /// Cursor's transcripts of its agent.
    Cursor,
    /// Cline's messages.
    Cline,
    /// Sessions that Goose exports.
    Goose,
    /// Aider's chat histories.
    Aider,
}

/// The display names of the formats.
const KNOWN: &str = "Claude Code, Codex CLI, Gemini CLI, Copilot CLI, OpenCode, Cursor, Cline, Goose, Aider, OpenHands, \
    mini-swe-agent, SWE-agent, Inspect and ATIF";

impl TranscriptFormat {
    /// Returns the format's name, as serialized.
    pub fn name(self) -> &'static str {
        match self {
            Self::Atif => "atif",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::SweAgent => "swe-agent",
            Self::OpenHands => "open-hands",
            Self::Inspect => "inspect",
            Self::CopilotCli => "copilot-cli",
            Self::OpenCode => "opencode",
            Self::Cursor => "cursor",
            Self::Cline => "cline",
            Self::Goose => "goose",
            Self::Aider => "aider",
        }
    }

    fn reader(self, run: &SourceRun) -> Box<dyn Transcript> {
        match self {
            Self::Atif => Box::new(atif::steps_of),
            Self::ClaudeCode => Box::<claude::ClaudeCode>::default(),
            Self::Codex => Box::<codex::Codex>::default(),
            Self::GeminiCli => Box::<gemini::GeminiCli>::default(),
            Self::MiniSweAgent => Box::<mini::MiniSweAgent>::default(),
            Self::SweAgent => Box::new(swe_agent::steps_of),
            Self::OpenHands => Box::new(openhands::steps_of),
            Self::Inspect => Box::new(inspect::steps_of),
            Self::CopilotCli => Box::new(copilot::Copilot::of(run)),
            Self::OpenCode => Box::new(opencode::steps_of),
            Self::Cursor | Self::Cline | Self::Goose => Box::<messages::MessageReader>::default(),
            Self::Aider => Box::<aider::Aider>::default(),
        }
    }
}

/// A reader of one format.
trait Transcript {
    /// Emits the steps of the next line, or of a whole document. Emitted steps are final: a later import of a longer
    /// transcript has to produce the same steps first.
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>);

    /// Emits the remaining steps at the end.
    fn end(&mut self, _steps: &mut StepReceiver<'_>) {}
}

/// A stateless reader.
impl<F: FnMut(Value, &mut StepReceiver<'_>)> Transcript for F {
    fn line(&mut self, line: Value, steps: &mut StepReceiver<'_>) {
        self(line, steps);
    }
}

/// A run, as described at the beginning of its transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceRun {
    /// The kind of agent.
    agent: String,
    /// The agent's id of the run.
    id: String,
    /// The id of the parent run, for a subagent.
    parent: Option<String>,
    began: Option<Timestamp>,
    /// The directory of its recorded files.
    directory: Option<String>,
}

impl SourceRun {
    /// Returns the id of its session, which is derived from the agent and the run's id.
    fn session(&self) -> SessionId {
        let digest = Digest::of(format!("foldspace transcript\n{}\n{}", self.agent, self.id).as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&digest.as_bytes()[..16]);
        SessionId::from_bytes(id)
    }

    /// Returns a name for its session: the agent, and the beginning of the run's id.
    fn name(&self) -> String {
        let fits = |text: &str| -> String {
            text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
        };
        let id: String = fits(&self.id).chars().take(16).collect();
        let agent: String = fits(&self.agent).trim_start_matches(['.', '_', '-']).chars().take(40).collect();
        format!("{}-{}", if agent.is_empty() { "agent" } else { &agent }, id.trim_end_matches('-'))
    }
}

/// An imported run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ImportedRun {
    /// The session, by id.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The format of the transcript.
    pub format: TranscriptFormat,
    /// The agent's id of the run.
    pub run: String,
    /// The name of the parent session, for a child.
    pub parent: Option<String>,
    /// The number of events in the session.
    pub events: Seq,
    /// The number of events that this import added.
    pub added: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls without a statement of the files that they changed.
    pub incomplete: u64,
    /// The number of other records, which are stored verbatim.
    pub records: u64,
    /// The number of skipped lines that are not JSON.
    pub unreadable: u64,
}

/// Imports the runs in transcripts as sessions: calls with their parameters, outcomes and times, subagents as forks,
/// everything else as records, and files where the format states them. The format is detected from the contents.
///
/// A run always becomes the same session. Importing a transcript again after it has grown adds the new steps.
/// `name`, if given, becomes the name of the first run.
///
/// # Errors
/// [`TranscriptError`]: no format fits, or the session has diverged from the transcript. The run is not recorded.
pub fn import_transcripts(
    sessions: &Sessions,
    paths: &[&Path],
    name: Option<&str>,
) -> Result<Vec<ImportedRun>, TranscriptError> {
    let mut found = FoundRuns::default();
    paths.iter().try_for_each(|path| found.add_all(path))?;
    let FoundRuns(mut sources) = found;
    source::parents_first(&mut sources);
    let parents = sources.iter().filter_map(|source| source.run.parent.clone()).collect();
    let mut recorder = RunRecorder::new(parents)?;
    let mut imported = Vec::new();
    for (number, source) in sources.into_iter().enumerate() {
        let name = match name.filter(|_| number == 0) {
            Some(name) => name.to_owned(),
            None => free_name(sessions, &source.run)?,
        };
        let mut run = recorder.record(source, name)?;
        let copied = copy_session(run.session, recorder.sessions(), sessions)?;
        recorder.relieve()?;
        (run.name, run.events, run.added) = (copied.name, copied.events, copied.added);
        imported.push(run);
    }
    Ok(imported)
}

/// Returns the name of a run, with a suffix if another session has that name.
fn free_name(sessions: &Sessions, run: &SourceRun) -> Result<String, TranscriptError> {
    let (id, name) = (run.session(), run.name());
    let is_taken = sessions.named(&name)?.is_some_and(|holder| holder.id != id);
    Ok(if is_taken { format!("{name}-{}", id.short()) } else { name })
}
