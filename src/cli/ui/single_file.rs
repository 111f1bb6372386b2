//! The page and its data as one file.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use foldspace::event::Digest;
use foldspace::http::page_files;
use serde_json::{Map, Value};
use std::io::Write;

use crate::cli::Failure;

/// The script that starts the page from its modules: it makes a separate URL for each, its imports first.
const START: &str = r#"
const addresses = new Map();
const at = (name) => {
  if (!addresses.has(name)) {
    const imports = /(\bfrom\s*|\bimport\s*)(["'])(\.{1,2}\/[^"']+)\2/g;
    const source = modules[name].replace(imports, (whole, word, quote, path) => {
      const other = new URL(path, "file:///" + name).pathname.slice(1);
      return other in modules ? word + quote + at(other) + quote : whole;
    });
    addresses.set(name, URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  }
  return addresses.get(name);
};
import(at("app.js"));
"#;

/// Returns data as stored in the file: compressed, and encoded so that it can't end an element.
pub(super) fn packed(data: &[u8]) -> Result<String, Failure> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    let bytes = packer.write_all(data).and_then(|()| packer.finish());
    Ok(BASE64_STANDARD.encode(bytes.map_err(|error| Failure::failed(format!("can't pack the session: {error}")))?))
}

/// Returns the file. Its policy forbids requests and other scripts.
pub(super) fn file_with(data: &str) -> String {
    let text = |name: &str| page_files().iter().find(|file| file.0 == name).map(|file| String::from_utf8_lossy(file.1));
    let is_module = |name: &str| name.ends_with(".js") && name != "early.js";
    let modules = page_files().iter().filter(|file| is_module(file.0));
    let modules: Map<String, Value> =
        modules.map(|(name, source)| ((*name).to_owned(), String::from_utf8_lossy(source).into())).collect();
    // The escape means the same in a JavaScript string, but can't end an element.
    let modules = Value::from(modules).to_string().replace('<', "\\u003c");
    let script = format!("const modules = {modules};{START}");
    let styles: String = page_files()
        .iter()
        .filter(|file| file.0.ends_with(".css"))
        .map(|file| String::from_utf8_lossy(file.1))
        .collect();
    let styles = styles.replace("</", "<\\/");
    // No text within the data can contain the data's digest.
    let nonce = Digest::of(data.as_bytes());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}' blob:; style-src 'nonce-{nonce}'; img-src blob: data:; base-uri \
         'none'; form-action 'none'"
    );
    let head = format!(
        "<head>\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<meta name=\"referrer\" \
         content=\"no-referrer\">"
    );
    let index = text("index.html").unwrap_or_default();
    let kept = index.lines().filter(|line| !line.contains("\"/assets/")).collect::<Vec<_>>().join("\n");
    let body = format!(
        "<script id=\"foldspace-export\" type=\"application/json\">{data}</script>\n\
         <script type=\"module\" nonce=\"{nonce}\">{script}</script>\n</body>"
    );
    let page = kept.replacen("<head>", &head, 1).replacen(
        "</head>",
        &format!("<style nonce=\"{nonce}\">{styles}</style>\n</head>"),
        1,
    );
    page.replacen("</body>", &body, 1)
}
