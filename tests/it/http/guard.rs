//! Who may come in over TCP.

use std::os::unix::fs::PermissionsExt;

use crate::rig::{Server, TOKEN};

#[tokio::test]
async fn tcp_needs_the_right_token() {
    let served = Server::begin().await;
    let right = format!("Bearer {TOKEN}");
    let get = async |path: &str, shown: &str| {
        let headers: &[(&str, &str)] = if shown.is_empty() { &[] } else { &[("authorization", shown)] };
        served.ask_tcp(path, headers).await
    };
    for shown in [right.as_str(), &format!("bearer {TOKEN}")] {
        assert_eq!(get("/v1/sessions", shown).await.status, 200, "{shown}");
    }
    let almost = format!("Bearer {}0", &TOKEN[..31]);
    let longer = format!("{right}0");
    for shown in ["", "Bearer", "Bearer ", &almost, &longer, &format!("Basic {TOKEN}"), TOKEN] {
        for path in ["/v1/sessions", "/metrics", "/openapi.json", "/nothing"] {
            let refused = get(path, shown).await;
            assert_eq!(refused.status, 401, "{path} {shown:?}");
            assert!(refused.header("www-authenticate").starts_with("Bearer"), "{refused:?}");
            assert_eq!(refused.header("content-type"), "application/problem+json");
        }
    }
    assert_eq!(get("/healthz", "").await.json()["status"], "ok");
}

#[tokio::test]
async fn foreign_host_and_origin_are_refused() {
    let served = Server::begin().await;
    let (right, own) = (format!("Bearer {TOKEN}"), served.address.to_string());
    let get = async |path: &str, host: &str, origin: &str| {
        let mut headers = vec![("authorization", right.as_str()), ("host", host)];
        if !origin.is_empty() {
            headers.push(("origin", origin));
        }
        served.ask_tcp(path, &headers).await
    };
    let same = format!("http://{own}");
    for (host, origin) in
        [(own.as_str(), ""), (&own, same.as_str()), ("localhost:1", "http://localhost:1"), ("box.example", "")]
    {
        assert_eq!(get("/v1/sessions", host, origin).await.status, 200, "{host} {origin}");
    }
    let wrong = [
        ("evil.example", ""),
        ("localhost.evil.example", ""),
        (own.as_str(), "http://evil.example"),
        (&own, "null"),
        (&own, "http://localhost:1"),
        (&own, "file://"),
    ];
    for (host, origin) in wrong {
        // Before the token is looked at, and where none is needed.
        for path in ["/v1/sessions", "/healthz"] {
            let refused = get(path, host, origin).await;
            assert_eq!((refused.status, &refused.json()["kind"]), (403, &"forbidden".into()), "{host} {origin}");
        }
    }
}

#[tokio::test]
async fn unix_socket_is_private() {
    let served = Server::begin().await;
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let headers = [("host", "anything.example")];
    assert_eq!(served.ask_with("GET", "/v1/sessions", None, &headers).await.status, 200);
}

#[tokio::test]
async fn unix_socket_path_may_be_long() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(60)).join("e".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    let path = deep.join("http.sock");
    let _listener = foldspace::http::bind_unix(&path).unwrap();
    assert!(path.exists());
    foldspace::http::connect_unix(&path).await.unwrap();
    let taken = foldspace::http::bind_unix(&path).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}
