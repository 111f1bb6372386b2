//! Text for messages: counts and lists.

pub(super) use crate::engine::counted::counted;

pub(super) fn all_of(names: &[String]) -> String {
    listed(names, "and")
}

pub(super) fn any_of(names: &[String]) -> String {
    listed(names, "or")
}

/// Returns a text, cut after `chars` characters.
pub fn beginning(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn listed(names: &[String], before_last: &str) -> String {
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {before_last} {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_a_sentence() {
        assert_eq!([counted(1, "call"), counted(0, "call"), counted(2, "entry")], ["1 call", "0 calls", "2 entries"]);
        assert_eq!(counted(2, "AWS key"), "2 AWS keys");
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!([all_of(&names[..1]), all_of(&names[..2]), all_of(&names)], ["a", "a and b", "a, b and c"]);
        assert_eq!(any_of(&names), "a, b or c");
        assert_eq!([beginning("äö", 2), beginning("äöü", 2), beginning("", 0)], ["äö", "äö…", ""]);
    }
}
