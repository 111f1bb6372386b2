//! The token that authorizes a client.

use super::problem::{HttpProblem, ProblemKind};
use crate::engine::error::ValueError;

/// The fewest characters of a token.
const CHARS_MIN: usize = 16;

/// Returns unguessable random text.
pub(super) fn secret() -> Result<String, HttpProblem> {
    let mut random = [0; 32];
    let failed = |error| HttpProblem::new(ProblemKind::Broken, format!("failed to get random bytes: {error}"));
    getrandom::fill(&mut random).map_err(failed)?;
    Ok(blake3::Hash::from(random).to_hex().to_string())
}

/// The access to the API.
#[derive(Debug, Clone)]
pub enum Access {
    /// Any client that can connect, as to a unix socket that only its owner can open.
    Owner,
    /// Clients that show the token.
    Token {
        /// The token.
        token: Token,
        /// Names of this machine that clients may use, besides `localhost` and its addresses.
        names: Vec<String>,
    },
}

/// The secret that a client shows. Only its digest is stored.
#[derive(Clone)]
pub struct Token(blake3::Hash);

impl Token {
    /// Creates a token from trimmed text.
    ///
    /// # Errors
    /// [`ValueError`] if it is too short, or not valid in a header.
    pub fn new(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        match text.len() >= CHARS_MIN && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(blake3::hash(text.as_bytes()))),
            false => {
                Err(ValueError::new(format!("a token has at least {CHARS_MIN} visible ASCII characters and no spaces")))
            }
        }
    }

    /// Returns true if the text is this token; compares in constant time.
    pub(super) fn is(&self, shown: &str) -> bool {
        blake3::hash(shown.as_bytes()) == self.0
    }

    /// Returns a secret for one purpose; the token can't be derived from it.
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
