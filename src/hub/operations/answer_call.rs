//! The answer to a call's question.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cancel_call::not_in_flight;
use super::{Operation, OperationContext, OperationError, OperationRoute};
use crate::engine::error::ErrorKind;
use crate::engine::id::Seq;
use crate::hub::in_flight::AnswerTaken;
use crate::tools::{ApprovalAnswer, words};

/// Stored characters of a reason. A longer reason is cut rather than refused, since a call waits for it.
const REASON_MAX: usize = 1000;

/// Answers the question that a call waits for. The client that streams the call is notified by a `question` event.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "NewAnswer")]
#[serde(deny_unknown_fields)]
pub struct AnswerCall {
    /// The position of its intent.
    pub call: Seq,
    /// The decision about the command.
    pub answer: CallAnswer,
    /// The reason of a refusal, for the author of the command. Its first 1,000 characters are stored.
    pub reason: Option<String>,
}

/// An answer to a question about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Choice")]
#[serde(rename_all = "lowercase")]
pub enum CallAnswer {
    /// Allows the command once.
    Once,
    /// Allows the command's programs for the rest of the session.
    Session,
    /// Allows every command that is not denied, for the rest of the session.
    Everything,
    /// Refuses the command.
    Refuse,
}

impl Operation for AnswerCall {
    const NAME: &'static str = "answer_call";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::post("calls", "/v1/sessions/{session}/calls/{call}/answer", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let reason = self.reason.unwrap_or_else(|| "the answer was no".to_owned());
        let answer = match self.answer {
            CallAnswer::Once => ApprovalAnswer::Once,
            CallAnswer::Session => ApprovalAnswer::Session,
            CallAnswer::Everything => ApprovalAnswer::Everything,
            CallAnswer::Refuse => ApprovalAnswer::Refuse(words::beginning(&reason, REASON_MAX)),
        };
        context.check_commands().await?;
        match context.hub.in_flight().answer(context.session().await?.id(), self.call, answer) {
            AnswerTaken::Yes => Ok(()),
            AnswerTaken::NoCall => Err(not_in_flight(self.call)),
            AnswerTaken::NoQuestion => {
                let detail = format!("call {} is not waiting for an answer", self.call);
                Err(OperationError::Told { kind: ErrorKind::Conflict, detail, advice: None })
            }
        }
    }
}
