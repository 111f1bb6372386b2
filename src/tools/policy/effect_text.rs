//! Effects in words, without secrets.

use crate::engine::event::{EffectOutcome, EffectSource, ExternalEffect};

const WHAT_MAX: usize = 200;
const TARGET_MAX: usize = 1000;

pub(super) fn effect(what: &str, target: &str, undo: &str) -> Option<ExternalEffect> {
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    Some(ExternalEffect {
        what: cut(what, WHAT_MAX),
        target: cut(target, TARGET_MAX),
        outcome: EffectOutcome::Unknown,
        undo: undo.to_owned(),
        by: EffectSource::Command,
        of: None,
    })
}

/// Returns the target of an effect that a URL names.
pub(crate) fn target_of(url: &str) -> String {
    without_secrets(url).chars().take(TARGET_MAX).collect()
}

/// Removes the passwords and queries of the URLs in a text.
pub fn without_secrets(text: &str) -> String {
    let bare = |word: &str| {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        let rest = rest.split(['?', '#']).next().unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit('@').next().unwrap_or(authority);
        format!("{scheme}://{host}{path}")
    };
    text.split(' ').map(bare).collect::<Vec<_>>().join(" ")
}
