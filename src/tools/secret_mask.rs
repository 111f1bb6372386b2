//! Masks for likely secrets in files to share.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::percent_decode_str;
use regex::{Captures, Regex};
use serde_json::{Map, Value};

use super::words::{all_of, counted};

/// Replacement text for a secret.
const MASKED: &str = "[masked]";
/// The group of an expression that captures the secret; without it, the whole match is the secret.
const SECRET: &str = "s";

/// Well-known secrets: a kind and its expression.
const KNOWN: [(&str, &str); 10] = [
    ("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)"),
    // A key with its beginning cut off.
    ("private key", r"[A-Za-z0-9+/=\s]{40,}-----END [A-Z ]*PRIVATE KEY-----"),
    (
        "authorization header",
        r#"(?i)\b(?:authorization\\*["']?\s*[:=]\s*\\*["']?(?:(?:bearer|basic|token)\s+)?|bearer\s+)(?P<s>[A-Za-z0-9._~+/=-]{12,})"#,
    ),
    ("AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{22,})"),
    ("OpenAI or Anthropic key", r"\bsk-[A-Za-z0-9_-]{20,}"),
    ("Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    (
        "password",
        r#"(?i)[?&](?:(?:access_|id_|refresh_|auth_)?token|api_?key|client_secret|password|sig|signature|x-(?:amz|goog)-signature)=(?P<s>[^&#\s"'\\<>]{3,})"#,
    ),
    ("password", r"\b[a-z][a-z0-9+.-]*://[^/\s:@]*:(?P<s>[^/\s:@]{3,})@"),
    // In a shell or a `.env` file, as a literal in a program, and as an option.
    (
        "password",
        r#"(?x)
        (?: \b [A-Z0-9_]* (?: PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS? ) = \\*["']?
          | (?i: (?: password|passwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key ) \\*["']? \s* [:=]\s* \\*["'] )
          | (?i: --? (?: [a-z]+- )* (?: password|passwd|secret|token|api-?key ) (?: =|\s+ ) \\*["']? ) )
        (?P<s> [^\s"'\\$<>{}()\[\]*;,&|-] [^\s"'\\;,&|]{5,} )"#,
    ),
];
/// Names of fields and variables with secret values.
const NAMES: &str = r"(?i)^(?:.*[_-])?(?:password|passwd|pwd|passphrase|secret|token|api_?-?key|access_?-?key|private_?-?key|authorization)$";

/// Further names with secret values, in URLs and forms.
const FORM_NAMES: [&str; 9] =
    ["key", "sig", "signature", "x-amz-signature", "x-goog-signature", "pass", "code", "client_assertion", "session"];
/// Further headers with secrets, besides names that end in `-key`.
const HEADERS: [&str; 4] = ["cookie", "set-cookie", "x-auth", "x-session-id"];
/// Values that are not secrets under any name: versions, as of the package `auth-token`.
const VERSION: &str = r"^(?:[\^~<>=v ]+\d[\w.*+-]*|\d+(?:\.[\dx*]+)+(?:[-+][\w.]+)?|latest|\*)$";

/// Masks likely secrets and counts them by kind.
#[derive(Debug)]
pub struct SecretMask {
    texts: Vec<(&'static str, Regex)>,
    names: Option<Regex>,
    versions: Option<Regex>,
    found: BTreeMap<&'static str, u64>,
}

impl SecretMask {
    /// Returns a mask for matches of the `own` expressions and, if `knows` is true, for well-known secrets.
    pub fn new(knows: bool, own: &[Regex]) -> Self {
        let known = KNOWN.iter().filter(|_| knows).filter_map(|(kind, text)| Some((*kind, Regex::new(text).ok()?)));
        let own = own.iter().map(|own| ("match of a custom mask", own.clone()));
        let names = if knows { Regex::new(NAMES).ok() } else { None };
        let versions = Regex::new(VERSION).ok();
        Self { texts: own.chain(known).collect(), names, versions, found: BTreeMap::new() }
    }

    /// Returns true if it masks well-known secrets.
    pub fn knows(&self) -> bool {
        self.names.is_some()
    }

    /// Returns a text with its secrets masked.
    pub fn text<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let mut masked = Cow::Borrowed(text);
        for (kind, secret) in &self.texts {
            let mut count = 0;
            let replaced = secret.replace_all(&masked, |found: &Captures<'_>| {
                let (Some(whole), Some(secret)) = (found.get(0), found.name(SECRET).or_else(|| found.get(0))) else {
                    return String::new();
                };
                let is_version = |version: &Regex| *kind == "password" && version.is_match(secret.as_str());
                if secret.as_str() == MASKED || self.versions.as_ref().is_some_and(is_version) {
                    return whole.as_str().to_owned();
                }
                count += u64::from(!secret.is_empty());
                let end = &masked[secret.end()..whole.end()];
                [&masked[whole.start()..secret.start()], if secret.is_empty() { "" } else { MASKED }, end].concat()
            });
            if count > 0 {
                *self.found.entry(kind).or_default() += count;
                masked = Cow::Owned(replaced.into_owned());
            }
        }
        masked
    }

    /// Masks secrets in all strings of a document, and strings in fields with secret names.
    pub fn json(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(name, value)| self.field(name, value));
                *fields = masked.collect::<Map<_, _>>();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn names(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.is_match(name))
    }

    /// Returns true if a field of a form has a secret value.
    pub(crate) fn is_secret_field(&self, name: &str) -> bool {
        let name = percent_decode_str(name).decode_utf8_lossy();
        self.names(&name) || is_among(&FORM_NAMES, &name)
    }

    /// Masks the strings below fields with secret names, however short they are.
    pub(crate) fn short_fields(&mut self, value: &mut Value, is_below: bool) {
        match value {
            Value::String(text) if is_below && !text.is_empty() && !self.is_version(text) => {
                *text = self.masked_password().to_owned();
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.short_fields(item, is_below)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_secret = is_below || self.names(name);
                    // A package with such a name has an object or a version.
                    self.short_fields(value, is_secret && !value.is_object());
                }
            }
            _ => {}
        }
    }

    fn is_version(&self, text: &str) -> bool {
        self.versions.as_ref().is_some_and(|versions| versions.is_match(text))
    }

    fn masked_password(&mut self) -> &'static str {
        *self.found.entry("password").or_default() += 1;
        MASKED
    }

    /// Masks the values of a form or of a query, `a=b&c=d`.
    pub(crate) fn pairs(&mut self, text: &str) -> String {
        let masked: Vec<String> = text.split('&').map(|pair| self.pair(pair)).collect();
        masked.join("&")
    }

    fn pair(&mut self, pair: &str) -> String {
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && self.is_secret_field(name) => {
                format!("{name}={}", self.masked_password())
            }
            _ => self.text(pair).into_owned(),
        }
    }

    /// Returns the value of a header with its secrets masked.
    pub(crate) fn header<'t>(&mut self, name: &str, value: &'t str) -> Cow<'t, str> {
        let is_key = name.to_ascii_lowercase().ends_with("-key");
        match is_key || self.names(name) || is_among(&HEADERS, name) {
            true => Cow::Borrowed(self.masked_password()),
            false => self.text(value),
        }
    }

    fn field(&mut self, name: String, mut value: Value) -> (String, Value) {
        match &mut value {
            Value::String(text) if text.len() >= 6 && self.names(&name) && !self.is_version(text) => {
                *text = self.masked_password().to_owned()
            }
            Value::String(text) if name.ends_with("base64") => {
                let bytes = BASE64_STANDARD.decode(&*text).unwrap_or_default();
                if let Cow::Owned(masked) = self.text(&String::from_utf8_lossy(&bytes)) {
                    *text = BASE64_STANDARD.encode(masked);
                }
            }
            value => self.json(value),
        }
        (self.text(&name).into_owned(), value)
    }

    /// Returns true if a text has secrets; does not count them.
    pub fn finds(&self, text: &str) -> bool {
        self.texts.iter().any(|(_, secret)| secret.is_match(text))
    }

    /// Counts the secrets in bytes.
    pub fn count(&mut self, bytes: &[u8]) {
        drop(self.text(&String::from_utf8_lossy(bytes)));
    }

    /// Returns the number of secrets of each kind, as text; `None` if no secret was found.
    pub fn found(&self) -> Option<String> {
        let counted = |(kind, count): (&&str, &u64)| match (kind.strip_prefix("match"), count) {
            (Some(of), 2..) => format!("{count} matches{of}"),
            _ => counted(*count, kind),
        };
        let found: Vec<String> = self.found.iter().map(counted).collect();
        (!found.is_empty()).then(|| all_of(&found))
    }
}

fn is_among(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masked(text: &str) -> String {
        SecretMask::new(true, &[]).text(text).into_owned()
    }

    #[test]
    fn known_secrets_are_masked() {
        let key = |body: &str| format!("-----BEGIN OPENSSH PRIVATE KEY-----{body}-----END OPENSSH PRIVATE KEY-----");
        for (text, expected) in [
            ("curl -H 'Authorization: Bearer abcdefghijklmnop' x", "curl -H 'Authorization: Bearer [masked]' x"),
            (r#"{\"Authorization\": \"Basic dXNlcjpwYXNzd29yZA==\"}"#, r#"{\"Authorization\": \"Basic [masked]\"}"#),
            ("a AKIAIOSFODNN7EXAMPLE b", "a [masked] b"),
            ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[masked]"),
            ("git clone https://u:hunter2@host/x", "git clone https://u:[masked]@host/x"),
            ("ghp_0123456789abcdefghijABCDEFGHIJ012345!", "[masked]!"),
            ("github_pat_11ABCDEFG0123456789_abcdef", "[masked]"),
            ("sk-ant-api03-0123456789abcdef_-0123", "[masked]"),
            ("k=sk-proj-0123456789abcdefghij", "k=[masked]"),
            ("xoxb-123456789012-abcdef", "[masked]"),
            ("DB_PASSWORD=\"correct horse\"", "DB_PASSWORD=\"[masked] horse\""),
            ("export API_TOKEN=abcdef123", "export API_TOKEN=[masked]"),
            ("password = 'hunter22'", "password = '[masked]'"),
            (r#"{"client_secret": "abcdef99"}"#, r#"{"client_secret": "[masked]"}"#),
            ("mysql --password=hunter22 -u x", "mysql --password=[masked] -u x"),
            ("login --api-key hunter22", "login --api-key [masked]"),
        ] {
            assert_eq!(masked(text), expected);
        }
        assert_eq!(masked(&format!("a {} b", key("\nMII\n"))), "a [masked] b");
        assert_eq!(masked(&key(r"\nMII\n")), "[masked]");
        assert_eq!(masked("-----BEGIN RSA PRIVATE KEY-----\nMIIcut"), "[masked]");
        assert_eq!(masked(&format!("...{}\n-----END PRIVATE KEY-----", "QUJD".repeat(20))), "...[masked]");
    }

    #[test]
    fn text_without_secrets_stays() {
        for text in [
            "let token = self.lexer.next_token();",
            "token: String,",
            "PASSWORD=$SECRET_PASSWORD",
            "PASSWORD=${DB_PASSWORD:-}",
            "curl -H \"Authorization: Bearer $TOKEN\" x",
            "the bearer of this",
            "pip install scikit-learn; task-0123456789abcdefghij",
            "http://localhost:8080/a@b",
            "ssh-keygen writes a PRIVATE KEY",
            "max_tokens = 'unlimited'",
            "password = \"\"",
            "--token <TOKEN>",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn fields_are_masked_by_their_names_and_counted() {
        let mut mask = SecretMask::new(true, &[Regex::new("zebra[0-9]+").unwrap()]);
        let mut value = json!({
            "env": { "GITHUB_TOKEN": "marked1", "PATH": "/bin" }, "apiKey": "marked2", "prompt_tokens": "marked3",
            "list": ["zebra42", { "zebra7": 1 }], "base64": BASE64_STANDARD.encode("\u{0}x zebra1"), "token": 12,
        });
        mask.json(&mut value);
        let expected = json!({
            "env": { "GITHUB_TOKEN": "[masked]", "PATH": "/bin" }, "apiKey": "[masked]", "prompt_tokens": "marked3",
            "list": ["[masked]", { "[masked]": 1 }], "base64": BASE64_STANDARD.encode("\u{0}x [masked]"), "token": 12,
        });
        assert_eq!(value, expected);
        assert_eq!(mask.found().unwrap(), "3 matches of a custom mask and 2 passwords");
    }
}
