use std::path::PathBuf;

use foldspace::hub::operations::PolicyDocument;
use foldspace::reducers::{ToolPolicy, ToolRules};
use serde_json::json;

use super::{Failure, Globals, Out, OwnerClient, emit, open};

/// Shows or sets the policy for the tools of a session
///
/// The policy binds every call from then on, also in forks: which tools may run, which paths they may read and write, in
/// which order and how often. A call that breaks a rule is refused, and the refusal names the rule.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  foldspace policy demo
  foldspace policy demo --set policy.json
  foldspace policy demo --section-text section.md
  foldspace policy demo --remove

policy.json:
  {\"tools\": [\"read_file\", \"edit_file\", \"write_file\", \"shell_execute\"],
   \"read\": [\"**\", \"!.env\"], \"write\": [\"src/\", \"docs/\"],
   \"order\": [{\"first\": \"read_file\", \"before\": \"edit_file\", \"same_path\": true}],
   \"at_most\": [{\"tool\": \"shell_execute\", \"n\": 20}],
   \"commands_outside\": \"undo\", \"on_failure\": \"undo\"}

Every field may be left out. docs/policy.md explains them.")]
pub(super) struct PolicyArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Sets the session's own policy, a JSON file; `-` reads it from standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    set: Option<PathBuf>,
    /// Sets the text for the model in place of the usual section, with {tools}, {root}, {commands}, {mounts}, {section}
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "set")]
    section_text: Option<PathBuf>,
    /// Removes the session's own policy
    #[arg(long, conflicts_with_all = ["set", "section_text"])]
    remove: bool,
}

/// The policy for the tools of a new session
#[derive(Debug, clap::Args)]
pub(super) struct NewPolicy {
    /// The policy for tools of new sessions (with `serve`: those of MCP clients), a JSON file as for `foldspace policy`
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// The text for the model in place of the usual section, in that policy
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    section_text: Option<PathBuf>,
}

impl NewPolicy {
    pub(super) fn chosen(&self) -> Result<Option<ToolPolicy>, Failure> {
        let wrong = |error| Failure::usage(format!("the policy is invalid: {error}"));
        let read = |file| serde_json::from_value::<ToolPolicy>(emit::json_file(file)?).map_err(wrong);
        let policy = self.policy.as_deref().map(read).transpose()?;
        let Some(file) = &self.section_text else { return Ok(policy) };
        Ok(Some(ToolPolicy { section_text: Some(emit::text_file(file)?), ..policy.unwrap_or_default() }))
    }
}

impl PolicyArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        if self.remove {
            acting(globals, &self.session, async |owner, path| owner.client.delete(&path).await)?;
            return out.line("removed the policy");
        }
        let present = || -> Result<PolicyDocument, Failure> {
            Ok(ToolRules::of(&open::session(globals, &self.session)?.session.state()?).into())
        };
        let policy = match (&self.set, &self.section_text) {
            (Some(file), _) => Some(emit::json_file(file)?),
            (None, Some(file)) => {
                let section_text = Some(emit::text_file(file)?);
                Some(json!(ToolPolicy { section_text, ..present()?.policy.unwrap_or_default() }))
            }
            (None, None) => None,
        };
        let policies: PolicyDocument = match policy {
            Some(policy) => acting(globals, &self.session, async |owner, path| owner.client.put(&path, &policy).await)?,
            None => present()?,
        };
        match &policies {
            PolicyDocument { policy: None, inherited } if inherited.is_empty() && !out.is_json() => {
                out.line("no policy for tools; `foldspace policy NAME --set FILE` sets one")
            }
            policies => out.document(policies),
        }
    }
}

/// Runs a request of the session's policy, at its path.
fn acting<T>(
    globals: &Globals,
    session: &str,
    work: impl AsyncFnOnce(&OwnerClient, String) -> Result<T, foldspace::http::ClientError>,
) -> Result<T, Failure> {
    super::block_on(async {
        let owner = OwnerClient::of_existing(globals).await?;
        let id = open::reading(globals)?.find(session)?.session.id();
        let done = work(&owner, format!("/v1/sessions/{id}/policy")).await;
        owner.end().await;
        Ok::<_, Failure>(done?)
    })?
}
