//! Questions to a client's person about commands that need approval.

use std::collections::BTreeMap;

use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ConstTitle, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema, InputRequest, InputRequests, InputResponses, PrimitiveSchemaDefinition, ServerRequest,
    SingleSelectEnumSchema, TitledSingleSelectEnumSchema,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RequestHandle};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::names::shown;
use crate::tools::{ApprovalAnswer, Asker, Asking, CommandQuestion};
use crate::view;

/// The name of the only question of a round.
const KEY: &str = "allow";

pub(super) struct Question {
    question: CommandQuestion,
    reply: oneshot::Sender<ApprovalAnswer>,
}

pub(super) struct AsksClient {
    pub(super) to_client: mpsc::Sender<Question>,
    pub(super) cancelled: CancellationToken,
}

impl Asker for AsksClient {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let (to_client, cancelled) = (self.to_client.clone(), self.cancelled.clone());
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let unasked = || ApprovalAnswer::Refuse("the client disconnected before it was asked".to_owned());
            if to_client.send(Question { question, reply }).await.is_err() {
                return unasked();
            }
            match answer.await {
                Ok(answer) => answer,
                // A cancelled call is interrupted, not refused.
                Err(_) if cancelled.is_cancelled() => std::future::pending().await,
                Err(_) => unasked(),
            }
        })
    }
}

/// Asks outside of a call. The answer is valid once.
pub(super) struct AsksAtOnce(pub(super) Peer<RoleServer>);

impl Asker for AsksAtOnce {
    fn ask(&self, question: CommandQuestion) -> Asking {
        let peer = self.0.clone();
        Box::pin(async move {
            let (reply, _waits) = oneshot::channel();
            match (Question { question, reply }).ask(&peer).await {
                Some(ApprovalAnswer::Session | ApprovalAnswer::Everything) => {
                    ApprovalAnswer::Refuse("the person gave no clear answer".to_owned())
                }
                Some(answer) => answer,
                None => ApprovalAnswer::Refuse("failed to ask the person".to_owned()),
            }
        })
    }
}

pub(super) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|can| can.elicitation);
    elicitation.is_some_and(|can| can.form.is_some() || can.url.is_none())
}

impl Question {
    /// Asks with a separate request. `None` if the call no longer waits.
    pub(super) async fn ask(&mut self, peer: &Peer<RoleServer>) -> Option<ApprovalAnswer> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(self.form()));
        let asked = tokio::select! {
            asked = ask(peer, request) => asked,
            () = self.reply.closed() => return None,
        };
        Some(asked.unwrap_or_else(|error| ApprovalAnswer::Refuse(format!("failed to ask the person: {error}"))))
    }

    pub(super) fn answer(self, answer: ApprovalAnswer) {
        drop(self.reply.send(answer));
    }

    pub(super) fn as_input(&self) -> InputRequests {
        BTreeMap::from([(KEY.to_owned(), InputRequest::Elicitation(ElicitRequest::new(self.form())))])
    }

    pub(super) fn answer_with(self, responses: Option<InputResponses>) {
        let given = responses.and_then(|mut responses| responses.remove(KEY));
        let answer = match given.map(serde_json::from_value::<ElicitResult>) {
            Some(Ok(result)) => answer_of(&result),
            Some(Err(error)) => ApprovalAnswer::Refuse(format!("invalid answer: {error}")),
            None => ApprovalAnswer::Refuse("the client gave no answer".to_owned()),
        };
        self.answer(answer);
    }

    fn form(&self) -> ElicitRequestParams {
        let programs = view::allowed_by_session(&self.question);
        let mut choices = vec![
            ("once", "Allow it once".to_owned()),
            ("session", format!("Allow {programs} for this session")),
            ("everything", "Allow everything for this session".to_owned()),
            ("deny", "Do not run it".to_owned()),
        ];
        // Copies don't belong to a session that could store an allowance.
        choices.retain(|(answer, _)| matches!(*answer, "once" | "deny") || self.question.copies.is_none());
        let choices = choices.into_iter().map(|(value, title)| ConstTitle::new(value, title)).collect();
        let choice = EnumSchema::Single(SingleSelectEnumSchema::Titled(TitledSingleSelectEnumSchema::new(choices)));
        let properties = BTreeMap::from([("answer".to_owned(), PrimitiveSchemaDefinition::Enum(choice))]);
        let requested_schema = ElicitationSchema::new(properties).with_required(vec!["answer".to_owned()]);
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: view::question(&self.question),
            requested_schema,
        }
    }
}

/// Cancels a request when it is dropped.
struct Withdrawn(Option<RequestHandle<RoleServer>>);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(handle.cancel(Some("the call no longer waits for the answer".to_owned())));
        }
    }
}

async fn ask(peer: &Peer<RoleServer>, request: ServerRequest) -> Result<ApprovalAnswer, String> {
    let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
    let mut open = Withdrawn(Some(sent.map_err(|error| error.to_string())?));
    let answered = match &mut open.0 {
        Some(handle) => (&mut handle.rx).await,
        None => return Err("the request was withdrawn".to_owned()),
    };
    open.0 = None;
    match answered {
        Ok(Ok(ClientResult::ElicitResult(result))) => Ok(answer_of(&result)),
        Ok(Ok(_)) => Err("the client answered something else".to_owned()),
        Ok(Err(error)) => Err(shown(&error.to_string(), 300)),
        Err(_) => Err("the client disconnected".to_owned()),
    }
}

fn answer_of(result: &ElicitResult) -> ApprovalAnswer {
    let chosen = result.content.as_ref().and_then(|content| content.get("answer")?.as_str());
    match (&result.action, chosen) {
        (ElicitationAction::Accept, Some("once")) => ApprovalAnswer::Once,
        (ElicitationAction::Accept, Some("session")) => ApprovalAnswer::Session,
        (ElicitationAction::Accept, Some("everything")) => ApprovalAnswer::Everything,
        (ElicitationAction::Accept, Some("deny")) | (ElicitationAction::Decline, _) => {
            ApprovalAnswer::Refuse("the person said no".to_owned())
        }
        (ElicitationAction::Accept, _) => ApprovalAnswer::Refuse("the person gave no clear answer".to_owned()),
        _ => ApprovalAnswer::Refuse("the person did not answer".to_owned()),
    }
}
