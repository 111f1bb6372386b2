//! A proxy that can fail, before an S3 server that `FOLDSPACE_TEST_S3` names as ADDR:PORT. It has the bucket `bucket`,
//! and takes any keys.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::rig::skip;

/// Failure of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Unavailable,
    /// Passes on this many bytes of the request.
    HalfRequest(u64),
    /// Passes on this many bytes of the answer.
    HalfAnswer(u64),
    Slow(Duration),
}

struct Proxy {
    fault: Fault,
    /// Connections that were made before the fault.
    open: JoinSet<()>,
}

/// A way to the S3 server.
pub(crate) struct S3 {
    proxy: Arc<Mutex<Proxy>>,
    address: SocketAddr,
    runtime: Runtime,
}

impl S3 {
    /// Begins to pass on; none, and the test is skipped, where the server is not there.
    pub(crate) fn begin() -> Option<Self> {
        let Ok(behind) = std::env::var("FOLDSPACE_TEST_S3") else {
            skip("no S3 server; tests/s3/ready.sh prints the settings of one");
            return None;
        };
        let behind: SocketAddr = behind.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let proxy = Arc::new(Mutex::new(Proxy { fault: Fault::None, open: JoinSet::new() }));
        let front = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = front.local_addr().unwrap();
        let passing = Arc::clone(&proxy);
        runtime.spawn(async move {
            while let Ok((stream, _)) = front.accept().await {
                let mut proxy = passing.lock().unwrap();
                let fault = proxy.fault;
                proxy.open.spawn(async move {
                    // Either side may go away, as it likes.
                    drop(pass(stream, behind, fault).await);
                });
            }
        });
        Some(Self { proxy, address, runtime })
    }

    /// Fails like this from now on.
    pub(crate) fn set(&self, fault: Fault) {
        let _runtime = self.runtime.enter();
        let mut proxy = self.proxy.lock().unwrap();
        proxy.fault = fault;
        proxy.open = JoinSet::new();
    }

    /// Returns the environment of a program that uses it.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
        ]
    }
}

async fn pass(mut client: TcpStream, behind: SocketAddr, fault: Fault) -> std::io::Result<()> {
    if let Fault::Slow(time) = fault {
        tokio::time::sleep(time).await;
    }
    if fault == Fault::Unavailable {
        // The head of the request, at least.
        let _count = client.read(&mut [0; 4096]).await?;
        return client.write_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    }
    let mut server = TcpStream::connect(behind).await?;
    if !matches!(fault, Fault::HalfRequest(_) | Fault::HalfAnswer(_)) {
        return copy_bidirectional(&mut client, &mut server).await.map(drop);
    }
    let (request, answer) = match fault {
        Fault::HalfRequest(bytes) => (bytes, u64::MAX),
        Fault::HalfAnswer(bytes) => (u64::MAX, bytes),
        _ => (u64::MAX, u64::MAX),
    };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let mut asking = (&mut from_client).take(request);
    let mut answering = (&mut from_server).take(answer);
    // The first to end ends both.
    tokio::select! {
        asked = copy(&mut asking, &mut to_server) => asked.map(drop),
        answered = copy(&mut answering, &mut to_client) => answered.map(drop),
    }
}
