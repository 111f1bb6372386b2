//! NameListeners for programs without proxy support: a resolver gives each allowed name an address on loopback, where listeners take
//! its connections. A name is resolved outside only when something connects.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::intercept::relay;
use super::sockets::{ContainerSocket, SocketOpener};
use super::state::{ClientPlace, Proxy, SHORTAGE, opened};

/// The ports of names, besides those in the rules.
const PORTS: [u16; 3] = [22, 80, 443];
/// The first address of a name, and the number of them: each name has its own while it is in use.
const ADDRESSES: (u32, u32) = (Ipv4Addr::new(127, 64, 0, 1).to_bits(), (1 << 22) - 2);
/// The most names with listeners at once. A new name replaces the least recently used one.
const NAMES_MAX: usize = 256;
/// Time without a query or a connection after which a name's listeners close.
const IDLE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(10);
/// Seconds for which a program may keep an answer.
const TTL: u32 = 5;
/// The most bytes of a query and of an answer.
const PACKET_MAX: usize = 512;

/// The names with listeners.
struct NameListeners {
    proxy: Arc<Proxy>,
    open: SocketOpener,
    known: BTreeMap<String, KnownName>,
    next: u32,
}

struct KnownName {
    address: Ipv4Addr,
    used: Instant,
    _listening: DropGuard,
}

/// Answers DNS queries.
pub(crate) async fn resolve(socket: UdpSocket, proxy: Arc<Proxy>, open: SocketOpener) {
    let mut names = NameListeners { proxy, open, known: BTreeMap::new(), next: 0 };
    let mut question = [0; PACKET_MAX];
    let mut look = tokio::time::interval(LOOK);
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut question) => received,
            now = look.tick() => {
                names.known.retain(|_, name| now.saturating_duration_since(name.used) < IDLE);
                continue;
            }
        };
        match received {
            Ok((length, from)) => {
                if let Some(answer) = names.answer(question.get(..length).unwrap_or_default()).await {
                    drop(socket.send_to(&answer, from).await);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "failed to receive a DNS query");
                tokio::time::sleep(SHORTAGE).await;
            }
        }
    }
}

impl NameListeners {
    /// Returns the answer to a query; `None` if it is malformed.
    async fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let asked = Packet::parse(bytes).ok().filter(|packet| !packet.has_flags(PacketFlag::RESPONSE))?;
        let question = asked.questions.first()?.clone().into_owned();
        let mut answer = Packet::new_reply(asked.id());
        answer.set_flags(PacketFlag::RECURSION_AVAILABLE | PacketFlag::AUTHORITATIVE_ANSWER);
        let name = question.qname.to_string().to_ascii_lowercase();
        let (is_internet, kind) = (question.qclass == QCLASS::CLASS(CLASS::IN), question.qtype);
        match self.allowed(&name) {
            true if is_internet && kind == QTYPE::TYPE(TYPE::A) => match self.address(&name).await {
                Ok(address) => {
                    let data = RData::A(A { address: address.to_bits() });
                    answer.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, data));
                }
                Err(error) => {
                    tracing::warn!(%error, name, "failed to listen for a name");
                    *answer.rcode_mut() = RCODE::ServerFailure;
                }
            },
            // Other records are not known; there is no address of version 6.
            true => {}
            false => {
                if kind == QTYPE::TYPE(TYPE::A) {
                    self.proxy.refuse_name(&name);
                }
                *answer.rcode_mut() = RCODE::NameError;
            }
        }
        answer.questions.push(question);
        answer.build_bytes_vec().ok()
    }

    /// Returns true if the rules allow the name at one of its ports.
    fn allowed(&self, name: &str) -> bool {
        let rules = self.proxy.rules();
        self.ports().iter().any(|port| rules.check_name(name, *port).is_ok())
    }

    fn ports(&self) -> Vec<u16> {
        let rules = self.proxy.rules();
        let mut ports: Vec<u16> = rules.allow.iter().filter_map(|pattern| pattern.port()).chain(PORTS).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Returns the address of a name, at which listeners wait.
    async fn address(&mut self, name: &str) -> io::Result<Ipv4Addr> {
        let now = Instant::now();
        if let Some(known) = self.known.get_mut(name) {
            known.used = now;
            return Ok(known.address);
        }
        if self.known.len() >= NAMES_MAX
            && let Some(oldest) = self.known.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone())
        {
            self.known.remove(&oldest);
        }
        let address = Ipv4Addr::from_bits(ADDRESSES.0 + self.next % ADDRESSES.1);
        self.next = self.next.wrapping_add(1);
        let ports = self.ports();
        let open = Arc::clone(&self.open);
        let listeners = tokio::task::spawn_blocking(move || {
            let listen = |port: &u16| open(ContainerSocket::Listen(SocketAddrV4::new(address, *port)));
            // A server of the commands may have a port already.
            ports.iter().filter_map(|port| Some((*port, listen(port).ok()?))).collect::<Vec<_>>()
        });
        let listeners = listeners.await.map_err(io::Error::other)?;
        if listeners.is_empty() {
            return Err(io::Error::other("no port is free"));
        }
        let end = CancellationToken::new();
        for (port, listener) in listeners {
            let listener = opened(listener.into(), TcpListener::from_std)?;
            let (name, end) = (name.to_owned(), end.clone());
            let accepting = Arc::clone(&self.proxy)
                .accept(listener, move |stream, proxy, place| pass_on(stream, proxy, place, (name.clone(), port)));
            self.proxy.spawn(async move {
                tokio::select! {
                    () = accepting => {}
                    () = end.cancelled() => {}
                }
            });
        }
        self.known.insert(name.to_owned(), KnownName { address, used: now, _listening: end.drop_guard() });
        Ok(address)
    }
}

async fn pass_on(stream: TcpStream, proxy: Arc<Proxy>, place: ClientPlace, (name, port): (String, u16)) {
    match proxy.reach(&name, port, "name").await {
        Ok(reached) => {
            place.leave();
            relay(&proxy, stream, reached, &name, port).await;
        }
        // The program sees a reset connection.
        Err(_) => drop(stream.set_zero_linger()),
    }
}
