use foldspace::hub::operations::{RolloutDocument, RolloutsDocument};
use foldspace::view::Position;
use serde_json::{Value, json};

use super::{
    AtArg, BAD, BOLD, Cell, Exit, Failure, GOOD, Globals, ODD, Out, OwnerClient, TextTable, output, position, text,
    workspace,
};

/// Runs a command in several forks of a session, scores each fork, and removes all but the best
///
/// The score is the last line of output of the --score command. Without --score it is 1 if the command succeeds, and 0
/// if it fails. The score is recorded as an annotation of the fork. `compare` shows where the runs differ.
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Forks the session as it was at", "Forks the session as it was before")))]
#[command(after_help = "\
Examples:
  foldspace rollouts NAME --count 8 --run './agent' --yes
  foldspace rollouts NAME --count 8 --run './agent' --score './score' --keep 2
  foldspace rollouts NAME --run './agent 1' --run './agent 2' --yes")]
pub(super) struct RolloutsArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The shell command of all forks; if given several times, one for each fork
    #[arg(long, value_name = "COMMAND", required = true)]
    run: Vec<String>,
    /// The number of forks, up to 1000 [default: the number of commands]
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    #[command(flatten)]
    at: AtArg,
    /// The shell command that prints the score
    #[arg(long, value_name = "COMMAND")]
    score: Option<String>,
    /// Removes all forks but the N with the highest scores
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Lets N forks work at the same time, up to 64 [default: 4]
    #[arg(long, value_name = "N")]
    parallel: Option<usize>,
    /// The prefix of the forks' names [default: the session's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The agent of the forks
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// Runs all commands that are not denied, without asking
    #[arg(short, long)]
    yes: bool,
    /// Runs this program without asking; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    allow: Vec<String>,
}

impl RolloutsArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let done: RolloutsDocument = super::block_on(async {
            let owner = OwnerClient::of_existing(globals).await?;
            let session = owner.sessions()?.find(&self.session)?.session;
            self.at.resolve(&session)?;
            let path = format!("/v1/sessions/{}/rollouts", session.id());
            let done = owner.client.work(&path, &self.request(), output::progress).await;
            owner.end().await;
            Ok::<_, Failure>(done?)
        })??;
        out.show(&done, |out| show(&done.rollouts, out))?;
        let is_well = done.rollouts.iter().all(|rollout| rollout.status == "done");
        Ok(if is_well { Exit::Ok } else { Exit::Failed })
    }

    fn request(&self) -> Value {
        let call = |command: &String| json!({ "tool": "shell_execute", "params": { "command": command } });
        let mut asked = json!({
            "run": self.run.iter().map(|command| [call(command)]).collect::<Vec<_>>(),
            "count": self.count,
            "at": self.at.position().map(Position::to_string),
            "score": self.score.as_ref().map(call),
            "keep": self.keep,
            "name": self.name,
            "agent": self.agent,
            "allow": self.allow,
            "auto_confirm": self.yes,
        });
        if let Some(parallel) = self.parallel {
            asked["parallel"] = json!(parallel);
        }
        asked
    }
}

fn show(rollouts: &[RolloutDocument], out: &mut Out) -> Result<(), Failure> {
    let mut table = TextTable::with_titles(&["fork", "status", ">score", "", ""]);
    for rollout in rollouts {
        let style = match &*rollout.status {
            "done" => GOOD,
            "cancelled" => ODD,
            _ => BAD,
        };
        table.row([
            Cell::left(text::one_line(&rollout.name, 80)).styled(BOLD),
            Cell::left(rollout.status.clone()).styled(style),
            Cell::right(rollout.score.map_or_else(|| "-".to_owned(), |score| score.to_string())),
            Cell::left(if rollout.kept { "" } else { "removed" }),
            Cell::left(text::one_line(rollout.reason.as_deref().unwrap_or_default(), 300)),
        ]);
    }
    table.show(out)
}
