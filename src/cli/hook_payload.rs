//! Reads the payload of a hook, and cuts it to fit into a request to the owner.

use std::io::{self, Read};

use serde_json::{Map, Value, json};

/// The largest payload that is read, in bytes.
const READ_MAX: usize = 256 << 20;
/// The largest payload that is forwarded, in bytes. A request is limited to 4 MiB, including its other fields.
const PASSED_MAX: usize = 3 << 20;
/// The lengths that strings are cut to, in bytes. Each shorter length is used if the payload is still too large.
const LONGEST: [usize; 4] = [256 << 10, 16 << 10, 256, 16];
/// Divides the length of strings to get the number of entries that lists and objects are cut to.
const BYTES_OF_ENTRY: usize = 16;
/// Fields with the parameters of a call. They are cut last, since they identify a call without an id.
const PARAMS: [&str; 2] = ["tool_input", "toolArgs"];

/// Reads a payload. Wraps text that is not JSON in a JSON object. Cuts long strings and lists of a large payload.
///
/// # Errors
/// The payload can't be read, or is too large.
pub(super) fn read(mut from: impl Read) -> io::Result<Value> {
    let mut bytes = Vec::new();
    from.by_ref().take(READ_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > READ_MAX {
        // Reads the rest, since the agent does not expect its pipe to break.
        io::copy(&mut from, &mut io::sink())?;
        let words = format!("dropped the report: its payload has more than {} MiB", READ_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    let payload =
        serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({ "unreadable": String::from_utf8_lossy(&bytes) }));
    drop(bytes);
    Ok(fitted(payload))
}

fn fitted(mut payload: Value) -> Value {
    let is_large = |payload: &Value| payload.to_string().len() > PASSED_MAX;
    if is_large(&payload) {
        let fields = payload.as_object_mut().into_iter().flatten();
        fields.filter(|(name, _)| !PARAMS.contains(&&***name)).for_each(|(_, field)| cut(field, LONGEST[0]));
    }
    for longest in LONGEST {
        if is_large(&payload) {
            cut(&mut payload, longest);
        }
    }
    payload
}

fn cut(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if text.len() > longest => {
            let left_out = text.len() - longest;
            text.truncate(text.floor_char_boundary(longest));
            text.push_str(&format!("... [{left_out} bytes left out]"));
        }
        Value::Array(items) => {
            items.truncate(longest / BYTES_OF_ENTRY);
            items.iter_mut().for_each(|item| cut(item, longest));
        }
        Value::Object(fields) => {
            let kept = std::mem::take(fields).into_iter().filter(|(name, _)| name.len() <= longest);
            *fields = kept.take(longest / BYTES_OF_ENTRY).collect::<Map<_, _>>();
            fields.values_mut().for_each(|field| cut(field, longest));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(payload: &Value) -> Value {
        read(payload.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn payload_that_fits_is_whole() {
        let payload = json!({ "tool_response": { "stdout": "x".repeat(2 << 20) }, "list": vec![0; 100_000] });
        assert_eq!(read_of(&payload), payload);
        assert_eq!(read(&b"{ no"[..]).unwrap(), json!({ "unreadable": "{ no" }));
    }

    #[test]
    fn payload_too_large_loses_ends_of_long_strings_only() {
        let input = json!({ "content": "é".repeat(1 << 20) });
        let payload = json!({ "tool_use_id": "t1", "tool_input": input, "tool_response": { "originalFile":
            "é".repeat(5 << 20), "filePath": "a" } });
        let read = read_of(&payload);
        assert_eq!((&read["tool_use_id"], &read["tool_input"]), (&json!("t1"), &input));
        assert_eq!(read["tool_response"]["filePath"], "a");
        let file = read["tool_response"]["originalFile"].as_str().unwrap();
        assert!(file.len() < 300 << 10 && file.ends_with("é... [10223616 bytes left out]"), "{}", file.len());
        // The report of the call's start has the same parameters, cut the same way.
        let large = json!({ "content": "y".repeat(5 << 20) });
        let [begun, ended] =
            [json!(null), json!("z".repeat(5 << 20))].map(|answer| json!({ "tool_input": large, "answer": answer }));
        assert_eq!(read_of(&begun)["tool_input"], read_of(&ended)["tool_input"]);
    }

    #[test]
    fn payload_too_large_fits_whatever_it_has() {
        let deep = (0..100).fold(json!("x".repeat(1000)), |inner, _| json!([inner, inner_of(40), "x".repeat(50_000)]));
        let long_names: Map<String, Value> =
            (0..50).map(|n| (format!("{n}{}", "k".repeat(100_000)), json!(1))).collect();
        for payload in [json!(vec![7; 4 << 20]), json!({ "a": vec![json!([]); 2 << 20] }), deep, json!(long_names)] {
            assert!(read_of(&payload).to_string().len() <= PASSED_MAX);
        }
    }

    fn inner_of(count: usize) -> Value {
        json!(vec!["y".repeat(1000); count])
    }

    #[test]
    fn payload_beyond_any_size_is_refused() {
        let refused = read(io::repeat(b' ').take(257 << 20)).unwrap_err();
        assert_eq!(refused.to_string(), "dropped the report: its payload has more than 256 MiB");
    }
}
