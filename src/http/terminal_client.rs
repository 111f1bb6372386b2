//! The client's side of a call over a websocket.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::client::{CallEvent, CallStream, ClientError, HttpClient, SentEvent, call_event};
use super::path_names::encoded;
use super::terminal::{Socket, TerminalOrder, TerminalRequest, accept_key};
use crate::backends::{OutputStream, WindowSize};

/// Sends input and the terminal's size to a command. Dropping it and its [`CallStream`] hangs the command up.
pub struct TerminalKeys(SplitSink<Socket, Message>);

impl TerminalKeys {
    /// Sends input, and waits while the command's and all intermediate buffers are full.
    pub async fn send(&mut self, input: Bytes) -> Result<(), ClientError> {
        self.message(Message::Binary(input)).await
    }

    /// Ends the input; at a terminal like Ctrl-D.
    pub async fn end_input(&mut self) -> Result<(), ClientError> {
        self.order(TerminalOrder::EndInput(true)).await
    }

    /// Sets the size of the terminal.
    pub async fn resize(&mut self, window: WindowSize) -> Result<(), ClientError> {
        self.order(TerminalOrder::Resize(window)).await
    }

    async fn order(&mut self, order: TerminalOrder) -> Result<(), ClientError> {
        let text = serde_json::to_string(&order).map_err(|error| ClientError::Odd(error.to_string()))?;
        self.message(Message::text(text)).await
    }

    async fn message(&mut self, message: Message) -> Result<(), ClientError> {
        self.0.send(message).await.map_err(|error| ClientError::Broken(error.to_string()))
    }
}

impl HttpClient {
    /// Begins a call with input, and returns its events. Dropping both results hangs the command up.
    pub async fn begin_terminal(
        &self,
        session: &str,
        request: &TerminalRequest,
    ) -> Result<(CallStream, TerminalKeys), ClientError> {
        let path = format!("/v1/sessions/{}/terminal", encoded(session));
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| ClientError::Odd(format!("no random numbers: {error}")))?;
        let key = BASE64_STANDARD.encode(nonce);
        let asked = Request::builder().method(Method::GET).uri(path).header(header::CONNECTION, "upgrade");
        let asked = asked.header(header::UPGRADE, "websocket").header(header::SEC_WEBSOCKET_VERSION, "13");
        let response = self.answered(asked.header(header::SEC_WEBSOCKET_KEY, &key), Vec::new()).await?;
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| *accepted != *accept_key(&key)) {
            return Err(ClientError::Odd("it is not a websocket".to_owned()));
        }
        let connection = TokioIo::new(hyper::upgrade::on(response).await?);
        let (sink, messages) = WebSocketStream::from_raw_socket(connection, Role::Client, None).await.split();
        let mut keys = TerminalKeys(sink);
        let first = serde_json::to_string(request).map_err(|error| ClientError::Odd(error.to_string()))?;
        keys.message(Message::text(first)).await?;
        let events = stream::unfold(messages, async |mut messages| {
            next_event(&mut messages).await.transpose().map(|event| (event, messages))
        });
        Ok((CallStream::of_terminal(events.boxed()), keys))
    }
}

/// Waits for the next event of a call; `None` at the connection's end.
async fn next_event(messages: &mut SplitStream<Socket>) -> Result<Option<CallEvent>, ClientError> {
    while let Some(message) = messages.next().await {
        match message.map_err(|error| ClientError::Broken(error.to_string()))? {
            Message::Binary(bytes) => return Ok(Some(CallEvent::Output { stream: OutputStream::Stdout, bytes })),
            Message::Text(text) => {
                let odd = |error: serde_json::Error| ClientError::Odd(error.to_string());
                let events: Map<String, Value> = serde_json::from_str(&text).map_err(odd)?;
                for (name, data) in events {
                    if let Some(event) = call_event(&SentEvent { name, data: data.to_string() })? {
                        return Ok(Some(event));
                    }
                }
            }
            Message::Close(_) => return Ok(None),
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    Ok(None)
}
