//! Images in which the resident runner can't run.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use foldspace::backends::PodmanOptions;
use serde_json::json;

use crate::rig::Rig;

/// Makes an image for another architecture of what runs here, and gives its name.
fn foreign_image(rig: &Rig) -> String {
    rig.ok("for f in /bin/sh /usr/bin/env /bin/sleep /bin/cat /bin/uname; do echo $f; readlink -f $f; \
         ldd $f | grep -o '/[^ ]*'; done | sort -u > list; \
         tar -chf root.tar -C / $(sed 's,^/,,' list)");
    let tar = std::fs::read(rig.root().join("root.tar")).unwrap();
    let name = format!("localhost/foldspace-foreign-{}", rig.name());
    let arch = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let request = format!(
        "POST /v4.0.0/libpod/images/import?reference={name}&architecture={arch} HTTP/1.1\r\nHost: d\r\n\
         Content-Type: application/x-tar\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        tar.len()
    );
    let url = std::env::var("CONTAINER_HOST").unwrap();
    let mut stream = UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(&tar).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    name
}

#[test]
fn image_of_another_architecture_is_refused_with_what_to_do() {
    let Some(maker) = Rig::podman(|options| options) else { return };
    let image = foreign_image(&maker);
    let rig = Rig::podman(|options| PodmanOptions { image: image.clone(), ..options }).unwrap();
    let refused = rig.bare("shell_execute", json!({ "command": "true" }));
    assert!(!refused.is_ok());
    let own = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    assert!(refused.text.contains(&format!("use an image for {own}")), "{}", refused.text);
    // The files are there all the same.
    assert!(rig.bare("write_file", json!({ "file_path": "a", "content": "a" })).is_ok());
    drop(rig);
    let removed = crate::rig::podman(async |podman| podman.images().get(&image).remove().await);
    assert!(removed.is_ok(), "{removed:?}");
}
