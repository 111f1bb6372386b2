//! A key on its way to a command at a terminal and back, over a websocket.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use foldspace::backends::WindowSize;
use foldspace::http::{CallEvent, CallRequest, CallStream, HttpClient, TerminalRequest};
use serde_json::json;

use super::Size;
use crate::sample::{micros, quantile};
use crate::served::Served;
use crate::table::{Table, against, number};

/// Reads on until a text was shown.
async fn shown(stream: &mut CallStream, wanted: &str) -> Result<()> {
    let mut text = String::new();
    while !text.contains(wanted) {
        match stream.next().await? {
            CallEvent::Output { bytes, .. } => text.push_str(&String::from_utf8_lossy(&bytes)),
            CallEvent::Ended(outcome) => bail!("it ended: {}", outcome.text),
            _ => {}
        }
    }
    Ok(())
}

/// Types a letter after the other into a command; gives the time until each came back.
async fn keys(client: &HttpClient, command: &str, count: usize) -> Result<Vec<Duration>> {
    let params = json!({ "command": command, "tty": true, "timeout_seconds": 300 });
    let params = params.as_object().cloned().unwrap_or_default();
    let tool = "shell_execute".to_owned();
    let call = CallRequest { tool, params, auto_confirm: true, ..CallRequest::default() };
    let request = TerminalRequest { call, window: Some(WindowSize::default()), ..TerminalRequest::default() };
    let (mut stream, mut keys) = client.begin_terminal("s", &request).await?;
    shown(&mut stream, "ready").await?;
    let mut took = Vec::with_capacity(count);
    for letter in ('a'..='z').cycle().take(count) {
        let (key, start) = (letter.to_string(), Instant::now());
        keys.send(key.clone().into()).await?;
        shown(&mut stream, &key).await?;
        took.push(start.elapsed());
        // As fast as nobody types; the way is quiet in between.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A command that counts its keys has ended, and nobody listens.
    drop(keys.end_input().await);
    loop {
        if let CallEvent::Ended(outcome) = stream.next().await? {
            ensure!(outcome.is_ok(), "{}", outcome.text);
            return Ok(took);
        }
    }
}

/// Measures it.
///
/// # Errors
/// When the program does not run.
pub fn report(size: Size) -> Result<Vec<Table>> {
    let served = Served::start()?;
    let mut line = served.connect()?;
    line.ask(&line.request("POST", "/v1/sessions", Some(&json!({ "name": "s", "backend": "host" }))))?;
    let client = HttpClient::at(served.data().join("http.sock"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut table = Table::new(
        "A key to a command at a terminal on the host, over a websocket",
        &["echo of", "p50, ms", "p99, ms"],
    );
    let ways = [
        ("the terminal itself", "echo ready; cat > /dev/null"),
        ("a program that reads each key", "stty raw -echo; echo ready; exec dd bs=1 status=none"),
    ];
    for (name, command) in ways {
        // In raw mode Ctrl-D ends nothing, so the second one ends with a count of keys.
        let count = size.of(200, 2000);
        let command = command.replace("bs=1", &format!("bs=1 count={count}"));
        let mut took = runtime.block_on(keys(&client, &command, count))?;
        let mut at = |part| quantile(&mut took, part).map_or(f64::NAN, micros) / 1e3;
        table.row([name.to_owned(), against(at(0.5), 3.0, false), number(at(0.99))]);
    }
    Ok(vec![table])
}
