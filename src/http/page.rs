//! The page in a browser: its files are embedded in the program.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{HttpFace, health};

/// The files below `web`, sorted by their paths there.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

const INDEX: &str = "index.html";
const ASSETS: &str = "/assets/";
/// The path where a page gets its token.
pub(super) const SIGN_IN: &str = "/v1/sign-in";

/// The page runs only its own scripts, and connects only to its own server. Its frames show ports of sandboxes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; frame-src http: https:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// Returns the files of the page, sorted by their paths.
pub fn page_files() -> &'static [(&'static str, &'static [u8])] {
    FILES
}

struct PageFile {
    plain: &'static [u8],
    /// Empty if it would be no smaller.
    packed: Bytes,
    tag: String,
    media: &'static str,
}

/// The files, compressed once, at the first request for a page.
static PACKED: LazyLock<BTreeMap<&'static str, PageFile>> =
    LazyLock::new(|| FILES.iter().map(|(name, plain)| (*name, PageFile::of(name, plain))).collect());

impl PageFile {
    fn of(name: &str, plain: &'static [u8]) -> Self {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let packed = packer.write_all(plain).and_then(|()| packer.finish()).unwrap_or_default();
        let packed = if packed.len() < plain.len() { packed.into() } else { Bytes::new() };
        let media = match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            _ => "application/octet-stream",
        };
        Self { plain, packed, tag: blake3::hash(plain).to_hex()[..32].to_owned(), media }
    }
}

/// Returns true for paths that a page needs before it has a token.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, "/" | SIGN_IN) || path.starts_with(ASSETS)
}

pub(super) fn routes() -> Router<HttpFace> {
    let index = |headers: HeaderMap, uri: Uri| async move { answer(INDEX, &headers, uri).await };
    let asset =
        |Path(name): Path<String>, headers: HeaderMap, uri: Uri| async move { answer(&name, &headers, uri).await };
    Router::new().route("/", get(index)).route("/assets/{*name}", get(asset))
}

async fn answer(name: &str, headers: &HeaderMap, uri: Uri) -> Response {
    let Some(file) = PACKED.get(name) else { return health::no_route(uri).await.into_response() };
    let given = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let takes_packed = given(header::ACCEPT_ENCODING).split(',').any(|coding| coding.trim().starts_with("gzip"));
    let is_packed = takes_packed && !file.packed.is_empty();
    let tag = if is_packed { format!("\"{}-gz\"", file.tag) } else { format!("\"{}\"", file.tag) };
    let is_known = given(header::IF_NONE_MATCH).split(',').any(|known| known.trim().trim_start_matches("W/") == tag);
    let mut response = match (is_known, is_packed) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => file.packed.clone().into_response(),
        (false, false) => Bytes::from_static(file.plain).into_response(),
    };
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::ETAG, &tag);
    set(header::VARY, "accept-encoding");
    set(header::CACHE_CONTROL, "no-cache");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if !is_known {
        set(header::CONTENT_TYPE, file.media);
        if is_packed {
            set(header::CONTENT_ENCODING, "gzip");
        }
    }
    response
}
