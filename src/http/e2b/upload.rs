//! Files in a body of the type `multipart/form-data` (RFC 7578).

use std::ops::Range;

use bytes::Bytes;

use super::connect::Wrong;

/// A file that a client sends.
pub(super) struct Upload {
    pub(super) path: String,
    pub(super) bytes: Bytes,
}

/// Returns the boundary of a multipart body.
pub(super) fn boundary(media: &str) -> Option<String> {
    let (kind, parameters) = media.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    parameter(parameters, "boundary").filter(|boundary| !boundary.is_empty())
}

/// Returns a parameter of a header, as `; name=value` or `; name="value"`.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text.trim_start_matches([';', ' ', '\t']);
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = after.trim_start_matches([';', ' ', '\t']);
    }
    None
}

/// Returns the text up to the closing quote, and the rest.
fn quoted_text(text: &str) -> (String, &str) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !escaped => return (value, &text[at + 1..]),
            '\\' if !escaped => escaped = true,
            letter => {
                value.push(letter);
                escaped = false;
            }
        }
    }
    (value, "")
}

/// Returns the files of a body: parts with a file name, and parts with the field name `file`, whose path may be empty.
/// Other fields are left out.
pub(super) fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Upload>, Wrong> {
    let wrong = || Wrong::invalid("the body is not multipart/form-data with the boundary in its header");
    let delimiter = format!("\r\n--{boundary}");
    let first = delimiter.as_bytes().get(2..).unwrap_or_default();
    let mut at = match body.starts_with(first) {
        true => first.len(),
        false => find(body, delimiter.as_bytes(), 0).ok_or_else(wrong)?.end,
    };
    let mut uploads = Vec::new();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(uploads);
        }
        let head_at = at + find(rest, b"\r\n", 0).ok_or_else(wrong)?.end;
        // A part without headers begins with an empty line.
        let head_end = find(body, b"\r\n\r\n", head_at.saturating_sub(2)).ok_or_else(wrong)?;
        let end = find(body, delimiter.as_bytes(), head_end.end.saturating_sub(2)).ok_or_else(wrong)?;
        let head = String::from_utf8_lossy(body.get(head_at..head_end.start.max(head_at)).unwrap_or_default());
        let disposition = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        });
        let field = |name| disposition.and_then(|value| parameter(value.split_once(';')?.1, name));
        let unnamed = || field("name").filter(|name| name == "file").map(|_| String::new());
        let named = field("filename").or_else(unnamed);
        if let Some(path) = named {
            uploads.push(Upload { path, bytes: body.slice(head_end.end..end.start.max(head_end.end)) });
        }
        at = end.end;
    }
}

fn find(text: &[u8], wanted: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = text.get(from..)?;
    let first = *wanted.first()?;
    let mut at = 0;
    loop {
        at += rest.get(at..)?.iter().position(|byte| *byte == first)?;
        if rest.get(at..)?.starts_with(wanted) {
            return Some(from + at..from + at + wanted.len());
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<Vec<(String, String)>> {
        let uploads = parts(&Bytes::copy_from_slice(body.as_bytes()), "xx").ok()?;
        let texts = |upload: Upload| (upload.path, String::from_utf8_lossy(&upload.bytes).into_owned());
        Some(uploads.into_iter().map(texts).collect())
    }

    #[test]
    fn multipart_files_are_read_with_their_names() {
        assert_eq!(boundary("multipart/form-data; boundary=xx").as_deref(), Some("xx"));
        assert_eq!(boundary("Multipart/Form-Data; charset=a; Boundary=\"x x\"").as_deref(), Some("x x"));
        assert_eq!(boundary("multipart/mixed; boundary=xx"), None);
        let head = "Content-Disposition: form-data; name=\"file\"; filename=";
        let body = format!(
            "--xx\r\n{head}\"a/b.txt\"\r\nContent-Type: text/plain\r\n\r\none\r\ntwo\r\n--xx\r\n{head}\"q\\\"x\"\r\n\r\n\
             \r\n--xx\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nfield\r\n--xx--\r\n"
        );
        let expected = [("a/b.txt", "one\r\ntwo"), ("q\"x", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(read(&body).unwrap(), expected);
        assert_eq!(read("preamble\r\n--xx--").unwrap(), []);
        assert_eq!(read("--xx\r\n\r\nno head\r\n--xx--").unwrap(), []);
    }

    #[test]
    fn multipart_that_is_cut_anywhere_is_refused() {
        let body = "--xx\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\nbytes\r\n--xx--";
        for end in 0..body.len() {
            assert_eq!(read(&body[..end]), None, "{end}");
        }
        assert!(read(body).is_some());
    }
}
