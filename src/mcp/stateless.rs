//! Clients over HTTP that keep no connection: each request brings who it is from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;

use super::client::{Client, Shared};

/// Clients that are known at once.
const CLIENTS_MAX: usize = 1024;

/// The clients by what they call themselves and the session that they ask for.
pub(super) struct Stateless {
    shared: Arc<Shared>,
    known: Mutex<BTreeMap<(String, Option<String>), Arc<Client>>>,
}

impl Stateless {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), known: Mutex::default() }
    }

    /// The client that makes a request. One that keeps a connection is its own.
    pub(super) fn client(
        &self,
        context: &RequestContext<RoleServer>,
        own: &Arc<Client>,
    ) -> Result<Arc<Client>, ErrorData> {
        let asked = context.extensions.get::<Parts>().and_then(|parts| session_of(parts.uri.query()?));
        if context.protocol_version().is_none_or(|version| version.has_initialize()) {
            if let Some(asked) = asked {
                own.ask_for(asked);
            }
            return Ok(Arc::clone(own));
        }
        let name = context.client_info().map_or_else(String::new, |info| info.name.chars().take(200).collect());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name, asked);
        if let Some(client) = known.get(&key) {
            return Ok(Arc::clone(client));
        }
        if known.len() >= CLIENTS_MAX {
            let what = format!("{CLIENTS_MAX} clients are known already; restart the server to forget them");
            return Err(ErrorData::internal_error(what, None));
        }
        let client = Client::new(&self.shared);
        if let Some(asked) = &key.1 {
            client.ask_for(asked.clone());
        }
        known.insert(key, Arc::clone(&client));
        Ok(client)
    }
}

/// The session that an address ends with: `?session=NAME`.
fn session_of(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("session="))?;
    (!value.is_empty()).then(|| value.to_owned())
}
