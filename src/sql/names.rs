//! Texts that many rows share, such as kinds and agents.

use std::sync::Arc;

/// Limit for the texts that are remembered.
const TEXTS: usize = 64;

#[derive(Default)]
pub(super) struct SharedTexts(Vec<Arc<str>>);

impl SharedTexts {
    pub(super) fn of(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.iter().find(|known| ***known == *text) {
            return Arc::clone(known);
        }
        let shared: Arc<str> = text.into();
        if self.0.len() < TEXTS {
            self.0.push(Arc::clone(&shared));
        }
        shared
    }
}
