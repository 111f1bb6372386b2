//! The token with which a client shows that it may.

use super::problem::{HttpProblem, ProblemKind};
use crate::engine::error::ValueError;

/// The shortest token that is taken from a person.
const CHARS_MIN: usize = 16;

/// Returns random text that nobody can guess.
pub(super) fn secret() -> Result<String, HttpProblem> {
    let mut random = [0; 32];
    let failed = |error| HttpProblem::new(ProblemKind::Broken, format!("the system gives no random bytes: {error}"));
    getrandom::fill(&mut random).map_err(failed)?;
    Ok(blake3::Hash::from(random).to_hex().to_string())
}

/// The access to the API.
#[derive(Debug, Clone)]
pub enum Access {
    /// All that can connect, as to a unix socket that only its owner can open.
    Owner,
    /// Clients that show the token.
    Token {
        /// The token.
        token: Token,
        /// Names of this machine under which clients come, beside `localhost` and its addresses.
        names: Vec<String>,
    },
}

/// The secret that a client shows. Only its digest is kept.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// Creates a token; white space around it does not count.
    ///
    /// # Errors
    /// [`ValueError`] if it is short, or can't stand in a header.
    pub fn new(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        match text.len() >= CHARS_MIN && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(blake3::hash(text.as_bytes()))),
            false => {
                Err(ValueError::new(format!("a token has at least {CHARS_MIN} visible ASCII characters and no spaces")))
            }
        }
    }

    /// Compares digests, in constant time.
    pub(super) fn is(&self, shown: &str) -> bool {
        blake3::hash(shown.as_bytes()) == self.0
    }

    /// Returns a secret for one purpose, from which the token can't be told.
    pub(super) fn derived(&self, purpose: &str) -> blake3::Hash {
        blake3::keyed_hash(self.0.as_bytes(), purpose.as_bytes())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_equals_only_itself() {
        let token = Token::new("  0123456789abcdef\n").unwrap();
        assert!(token.is("0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdef ", "0123456789abcdeF"] {
            assert!(!token.is(other), "{other:?}");
        }
        assert_eq!(format!("{token:?}"), "Token");
        for wrong in ["", "short", "0123456789 abcdef", "0123456789abcdé"] {
            assert!(Token::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
