use foldspace::Seq;
use serde_json::json;

use super::position::call_number;
use super::{Failure, Globals, Out, open, owner, text};

/// Cancels calls in flight, which are recorded as interrupted
#[derive(Debug, clap::Args)]
pub(super) struct CancelArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The call, by its number in `status` or `log` [default: all calls of the session]
    #[arg(value_parser = call_number)]
    call: Option<Seq>,
}

impl CancelArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let opened = open::reading(globals)?;
        let session = opened.find(&self.session)?.session;
        let nothing = || Failure::missing("no such call is in flight").with_hint("`foldspace status` lists them");
        let cancelled = super::block_on(async {
            let (client, status) = owner::running(&open::existing(globals)?).await?.ok_or_else(nothing)?;
            let is_meant = |call: &Seq| self.call.is_none_or(|wanted| wanted == *call);
            let calls =
                status.calls.iter().filter(|call| call.session == session.id()).map(|call| call.call).filter(is_meant);
            let calls: Vec<Seq> = calls.collect();
            for call in &calls {
                client.cancel(&session.id().to_string(), *call).await?;
            }
            Ok::<_, Failure>(calls)
        })??;
        if cancelled.is_empty() {
            return Err(nothing());
        }
        out.show(&json!({ "session": session.id(), "cancelled": cancelled }), |out| {
            let calls: Vec<String> = cancelled.iter().map(|call| format!("call {call}")).collect();
            out.line(format!("cancelled {} of {}", text::list(&calls), text::one_line(session.name(), 80)))
        })
    }
}
