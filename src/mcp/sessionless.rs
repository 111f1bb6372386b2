//! HTTP clients without a connection: each request names its client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::UNUSED_MAX;
use super::client::{McpClient, ServerState};
use super::connect_query::ConnectQuery;
use crate::engine::lock::lock;

/// Limit for the known clients. Beyond it, the longest-idle client is forgotten.
const CLIENTS_MAX: usize = 1024;
/// Interval between sweeps for idle clients.
const SWEEP: Duration = Duration::from_secs(60);

type Key = (String, ConnectQuery);

/// Clients by name and query. A client is known while it has an open request, and, if it has a session, for a while
/// afterwards.
pub(super) struct Stateless {
    shared: Arc<ServerState>,
    end: CancellationToken,
    known: Mutex<KnownClients>,
}

#[derive(Default)]
struct KnownClients {
    clients: BTreeMap<Key, (Arc<McpClient>, Instant)>,
    is_swept: bool,
}

impl Stateless {
    pub(super) fn new(shared: &Arc<ServerState>, end: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), end: end.clone(), known: Mutex::default() })
    }

    pub(super) fn client(
        self: &Arc<Self>,
        context: &RequestContext<RoleServer>,
        own: &Arc<McpClient>,
    ) -> Result<Arc<McpClient>, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let asked = parts.and_then(|parts| parts.extensions.get::<ConnectQuery>()).cloned().unwrap_or_default();
        if context.protocol_version().is_none_or(|version| version.has_initialize()) {
            own.ask_for(asked);
            return Ok(Arc::clone(own));
        }
        let name = context.client_info().map_or_else(String::new, |info| info.name.chars().take(200).collect());
        let key = (name, asked);
        let mut known = lock(&self.known);
        if let Some((client, used)) = known.clients.get_mut(&key) {
            *used = Instant::now();
            return Ok(Arc::clone(client));
        }
        known.make_room()?;
        let client = McpClient::new(&self.shared, &self.end);
        client.ask_for(key.1.clone());
        known.clients.insert(key, (Arc::clone(&client), Instant::now()));
        if !std::mem::replace(&mut known.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        Ok(client)
    }
}

impl KnownClients {
    /// Forgets clients that were idle too long or lack a session.
    fn sweep(&mut self) {
        self.clients
            .retain(|_, (client, used)| is_here(client) || (client.has_joined() && used.elapsed() < UNUSED_MAX));
    }

    fn make_room(&mut self) -> Result<(), ErrorData> {
        if self.clients.len() < CLIENTS_MAX {
            return Ok(());
        }
        self.sweep();
        while self.clients.len() >= CLIENTS_MAX {
            let away = self.clients.iter().filter(|(_, (client, _))| !is_here(client));
            let Some(longest) = away.min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone()) else {
                let what = format!("too many clients with open requests; the limit is {CLIENTS_MAX}; retry later");
                return Err(ErrorData::internal_error(what, None));
            };
            self.clients.remove(&longest);
        }
        Ok(())
    }
}

fn is_here(client: &Arc<McpClient>) -> bool {
    Arc::strong_count(client) > 1
}

/// Sweeps until no clients remain.
async fn sweep(stateless: Weak<Stateless>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(stateless) = stateless.upgrade() else { return };
        let mut known = lock(&stateless.known);
        known.sweep();
        if known.clients.is_empty() {
            known.is_swept = false;
            return;
        }
    }
}
