//! Signed URLs for files: they need no token.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};

use super::E2bApi;
use super::query::parameter;
use super::sandbox::Sandbox;

/// The signature of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlSignature {
    Valid,
    Expired,
    Wrong,
}

/// Returns whether a URL is signed with this sandbox's token for one of its files; the SDKs sign URLs themselves.
pub(super) fn signature(api: &E2bApi, sandbox: &Sandbox, text: Option<&str>, is_read: bool) -> UrlSignature {
    let shown = parameter(text, "signature").unwrap_or_default();
    let path = parameter(text, "path").unwrap_or_default();
    let user = parameter(text, "username").unwrap_or_default();
    // A path may have colons: with a colon in the user, the text would also fit another path or use.
    if user.contains(':') {
        return UrlSignature::Wrong;
    }
    let what = if is_read { "read" } else { "write" };
    let mut signed = format!("{path}:{what}:{user}:{}", api.token_of(sandbox.name()));
    let until = parameter(text, "signature_expiration");
    if let Some(until) = &until {
        signed = format!("{signed}:{until}");
    }
    let expected = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(signed.as_bytes())));
    // Comparing digests takes constant time.
    if blake3::hash(expected.as_bytes()) != blake3::hash(shown.as_bytes()) {
        return UrlSignature::Wrong;
    }
    let now = api.now().0 / 1000;
    match until.is_some_and(|until| until.parse::<i64>().map_or(true, |until| until < now)) {
        true => UrlSignature::Expired,
        false => UrlSignature::Valid,
    }
}
