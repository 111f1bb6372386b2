//! Requests that podman-api does not make as they must be made, over the same transport.
//!
//! Its options of a container have `no_new_privilages`, which goes out under that name: the engine does not know it.

use std::pin::Pin;

use containers_api::conn::hyper::{Body, Client, Response, body::to_bytes};
use containers_api::conn::{Headers, Payload, RequestClient, Transport, get_http_connector, get_unix_connector};
use podman_api::{Error, LATEST_API_VERSION};
use serde_json::Value;

/// Asks an engine what podman-api can't, on a connection of its own each time.
#[derive(Debug)]
pub(crate) struct Requests {
    client: RequestClient<Error>,
}

impl Requests {
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

    pub(crate) async fn post(&self, endpoint: &str, body: &Value) -> Result<Value, Error> {
        let endpoint = LATEST_API_VERSION.make_endpoint(endpoint);
        self.client.post_json(endpoint, Payload::Json(body.to_string()), Headers::none()).await
    }
}

type ValidResponse = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send + Sync>>;

/// Lets an answer through; a refusal becomes an error with what the engine says.
fn validate(response: Response<Body>) -> ValidResponse {
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
