//! Requests by command-line clients of HTTP that may change something elsewhere.

use super::effect_text::{effect, without_secrets};
use super::words::has;
use crate::engine::event::ExternalEffect;

/// Options with data to send.
const CURL_SENDS: &str =
    "-d --data --data-raw --data-binary --data-urlencode --data-ascii --json -F --form --form-string -T --upload-file";
const WGET_SENDS: &str = "--post-data --post-file --body-data --body-file";
/// Options of `curl` without values.
const CURL_FLAGS: &str = "#0123456BGIJLMNORSZafgijklnpqsv";
const LONG_FLAGS: &str = "--silent --show-error --fail --location --include --head --insecure --verbose --compressed --get --quiet \
    --no-verbose --json --form --ignore-stdin --check-status --follow";
const METHODS: &str = "GET POST PUT PATCH DELETE HEAD OPTIONS";

/// Returns the method that the options of a request name.
pub(super) fn method(arguments: &[String]) -> Option<&str> {
    let named = |(at, word): (usize, &'_ String)| {
        has("-X --request --method", word).then(|| arguments.get(at + 1).map(String::as_str))?
    };
    let joined =
        |word: &'_ String| ["--request=", "--method="].iter().find(|start| word.starts_with(**start)).map(|s| s.len());
    let all = arguments.iter();
    all.clone().enumerate().find_map(named).or_else(|| all.clone().find_map(|word| word.get(joined(word)?..)))
}

pub(super) fn of_request(program: &str, arguments: &[String]) -> Option<ExternalEffect> {
    // `-sX POST` and `-dDATA` are `-s -X POST` and `-d DATA`.
    let arguments = if program == "curl" { apart(arguments) } else { arguments.to_vec() };
    let said = |table: &str| arguments.iter().any(|word| has(table, word.split('=').next().unwrap_or(word)));
    let words = plain(program, &arguments);
    let is_httpie = has("http https xh", program);
    let bare = words.first().copied().filter(|word| is_httpie && has(METHODS, word));
    let sends = match program {
        "curl" => said(CURL_SENDS) && !said("-G --get"),
        "wget" => said(WGET_SENDS),
        // `name=value` and `name:=json` are data, `name==value` is a query.
        _ => words.iter().skip(1).any(|word| word.contains('=') && !word.contains("==") && !word.contains("://")),
    };
    let method = method(&arguments).or(bare).or(sends.then_some("POST"))?.to_uppercase();
    if has("GET HEAD OPTIONS", &method) {
        return None;
    }
    let url = words.iter().find(|word| bare != Some(**word))?;
    let rest = url.split_once("://").map_or(*url, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
    let is_here = ["localhost", "127.", "[::1]", "0.0.0.0", ":"].iter().any(|own| host.starts_with(own));
    (!is_here).then(|| effect(&format!("{program} {method}"), &without_secrets(url.split('?').next()?), ""))?
}

/// Splits joined short options of `curl`.
fn apart(arguments: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    for word in arguments {
        let Some(letters) = word.strip_prefix('-').filter(|rest| rest.len() > 1 && !rest.starts_with('-')) else {
            words.push(word.clone());
            continue;
        };
        for (at, letter) in letters.char_indices() {
            words.push(format!("-{letter}"));
            if !CURL_FLAGS.contains(letter) {
                let value = &letters[at + letter.len_utf8()..];
                words.extend((!value.is_empty()).then(|| value.to_owned()));
                break;
            }
        }
    }
    words
}

/// Returns the words that are neither options nor may be the values of options: headers, passwords, data.
fn plain<'a>(program: &str, arguments: &'a [String]) -> Vec<&'a str> {
    let is_flag = |word: &str| {
        // Only `curl` joins no value to a short option here; the others' short options are flags or rare.
        word.contains('=')
            || has(LONG_FLAGS, word)
            || (word.len() == 2 && program == "curl" && CURL_FLAGS.contains(&word[1..]))
    };
    let mut skips = false;
    let words = arguments.iter().filter(|word| {
        let is_value = std::mem::replace(&mut skips, word.starts_with('-') && !is_flag(word));
        !is_value && !word.starts_with('-')
    });
    words.map(String::as_str).collect()
}
