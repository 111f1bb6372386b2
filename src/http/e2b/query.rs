//! The query parameters of a URL.

use std::borrow::Cow;

/// Returns the parameters of a query, decoded.
pub(super) fn query(query: Option<&str>) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    match text.contains(['+', '%']) {
        false => Cow::Borrowed(text),
        true => {
            let spaced = text.replace('+', " ");
            Cow::Owned(percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
        }
    }
}

/// Returns the first parameter of a name.
pub(super) fn parameter(text: Option<&str>, name: &str) -> Option<String> {
    query(text).find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}
