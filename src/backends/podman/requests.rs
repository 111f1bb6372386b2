//! Requests that podman-api does not make as they must be made, over the same transport.
//!
//! Its `no_new_privilages` goes out under that name, which the engine does not know; and its reader of an exec's
//! streams panics at an unknown one and takes as much memory as a header says.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use containers_api::conn::hyper::{Body, Client, Response, body::to_bytes};
use containers_api::conn::{Headers, Payload, RequestClient, Transport, get_http_connector, get_unix_connector};
use futures_util::io::{AsyncRead, AsyncWrite};
use podman_api::{Error, LATEST_API_VERSION};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Asks an engine what podman-api can't, on a connection of its own each time.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    client: RequestClient<Error>,
}

impl Requests {
    /// For an engine at `unix://PATH`, `tcp://HOST:PORT` or `http://HOST:PORT`.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let transport = match url.split_once("://") {
            Some(("unix", path)) => Transport::Unix {
                client: Client::builder().pool_max_idle_per_host(0).build(get_unix_connector()),
                path: path.into(),
            },
            Some((_, host)) => Transport::Tcp {
                client: Client::builder().pool_max_idle_per_host(0).build(get_http_connector()),
                host: format!("tcp://{host}").parse().map_err(Error::InvalidUrl)?,
            },
            None => return Err(Error::MissingAuthority),
        };
        Ok(Self { client: RequestClient::new(transport, Box::new(validate)) })
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, endpoint: &str, body: &Value) -> Result<T, Error> {
        let endpoint = LATEST_API_VERSION.make_endpoint(endpoint);
        self.client.post_json(endpoint, Payload::Json(body.to_string()), Headers::none()).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, endpoint: &str) -> Result<T, Error> {
        self.client.get_json(LATEST_API_VERSION.make_endpoint(endpoint)).await
    }

    /// Asks for something that goes on as a stream of bytes in both directions.
    pub(crate) async fn stream(
        &self,
        endpoint: &str,
        body: &Value,
    ) -> Result<impl AsyncRead + AsyncWrite + use<>, Error> {
        let endpoint = LATEST_API_VERSION.make_endpoint(endpoint);
        self.client.clone().post_upgrade_stream(endpoint, Payload::Json(body.to_string())).await
    }
}

/// Gives up after a time.
pub(crate) async fn within<T>(limit: Duration, question: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answered = tokio::time::timeout(limit, question).await;
    answered.unwrap_or_else(|_| Err(Error::StringError(format!("no answer in {} s", limit.as_secs()))))
}

type Validated = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + Sync>>;

/// Lets an answer through; a refusal becomes an error with what the engine says.
fn validate(response: Response<Body>) -> Validated {
    Box::pin(async move {
        let code = response.status();
        if code.is_success() || code.is_informational() {
            return Ok(response);
        }
        let body = to_bytes(response.into_body()).await.map_err(containers_api::conn::Error::from)?;
        let said = serde_json::from_slice::<Value>(&body).ok();
        let said = said.as_ref().and_then(|said| said.get("message")).and_then(Value::as_str);
        let message = said.map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
        Err(Error::Fault { code, message })
    })
}
