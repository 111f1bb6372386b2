//! Batches of children in a hub.

use std::sync::Arc;

use serde_json::Value;

use super::open::User;
use super::{Hub, HubError, OpenSession, blocking, hosts, joined};
use crate::engine::event::Isolation;
use crate::tools::{ChildContext, Subagent, SubagentResult, Subagents, dispatch_subagents};

impl Hub {
    /// Creates children of an open session and lets `work` make calls in each, like [`dispatch_subagents`]. The batch
    /// holds the children's slots: other callers open their workspaces only after its end.
    pub(crate) async fn dispatch<W>(
        &self,
        parent: OpenSession,
        mut batch: Vec<Subagent>,
        options: Subagents,
        work: impl Fn(OpenSession, ChildContext) -> W + Send + Sync + 'static,
    ) -> Result<Vec<SubagentResult>, HubError>
    where
        W: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let going = self.shared.in_flight.begin(options.cancel.clone())?;
        let mut places = Vec::new();
        for Subagent { child, .. } in batch.iter_mut().filter(|new| new.child.isolation != Isolation::Shared) {
            let id = *child.id.insert(self.sessions().fresh_id());
            places.push((id, self.place(id).lock_owned().await));
        }
        let (hub, work) = (self.clone(), Arc::new(work));
        // Spawned, so that it completes even if the caller stops waiting.
        let done = tokio::spawn(async move {
            let (kept, lead) = (hub.clone(), parent.clone());
            let in_child = move |context: ChildContext| {
                let (runner, work) = (context.tool_runner.clone(), Arc::clone(&work));
                let (session, is_shared) = (runner.session().clone(), runner.session().id() == lead.session().id());
                let open = match is_shared {
                    true => lead.through(runner),
                    false => OpenSession::of(User::of(&kept.kept(runner))),
                };
                async move {
                    let claimed = blocking(move || hosts::claim_bare(&session)).await.flatten();
                    claimed.map_err(|error| error.to_string())?;
                    work(open, context).await
                }
            };
            let results = dispatch_subagents(parent.tool_runner(), &hub.forker(), batch, options, in_child).await;
            if let Some(hosts) = hub.sessions().store().hosts() {
                places.iter().for_each(|(id, _)| hosts.release(*id));
            }
            drop((places, going));
            results
        });
        joined(done.await)
    }
}
