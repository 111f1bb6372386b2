//! Advice for code that needs features that Python in process does not have.

const MODULES: &str = "json, re, math, statistics, datetime, itertools, collections, functools, dataclasses, pathlib, base64, typing and os.path";

/// Returns advice for code that failed, if it needed a missing feature.
pub(super) fn advice(failure: &str, has_shell: bool) -> Option<String> {
    let last = failure.trim_end().lines().last()?;
    let commands = match has_shell {
        true => "run it with shell_execute",
        false => "it needs a session with a container (backend podman)",
    };
    let instead = match last.split_once(':')?.0 {
        "ModuleNotFoundError" | "ImportError" => of_module(last, commands),
        "AttributeError" if last.contains("module 'os'") => format!("for commands and the system: {commands}"),
        "AttributeError" if last.contains("module '") => format!("for the whole of the library: {commands}"),
        "PermissionError" if last.contains("not supported") => {
            "open files with open() and pathlib, workspace files only if `reads` names them; glob, ls and rm are \
             tools"
                .to_owned()
        }
        "TypeError" if last.contains("for %: 'str'") => "write an f-string instead of `%`".to_owned(),
        "RuntimeError" if last.contains("date") => "it has no clock; pass the time in `globals`".to_owned(),
        "RuntimeError" if last.contains("os.") => "it has no environment; pass values in `globals`".to_owned(),
        "NameError"
            if ["eval", "exec", "compile", "__import__", "input"]
                .iter()
                .any(|name| last.contains(&format!("'{name}'"))) =>
        {
            format!("it can't evaluate text as code or read input: {commands}")
        }
        "NotImplementedError" | "SyntaxError" if last.contains("support") || last.contains("implement") => {
            format!("write it another way; or {commands}")
        }
        _ => return None,
    };
    Some(format!("this is Python in process, a subset of Python with {MODULES}; {instead}."))
}

fn of_module(last: &str, commands: &str) -> String {
    let names = |modules: &[&str]| modules.iter().any(|module| last.contains(&format!("'{module}")));
    if names(&["random", "time", "secrets", "uuid"]) {
        return "it has no clock and no randomness; pass values in `globals`".to_owned();
    }
    if names(&["socket", "urllib", "http", "requests", "ssl"]) {
        return format!("it has no network; {commands}");
    }
    if names(&["csv"]) {
        return "split the lines of a file instead".to_owned();
    }
    format!("for another module: {commands}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_to_use() {
        let given =
            |last: &str| advice(&format!("Traceback (most recent call last):\n{last}"), true).unwrap_or_default();
        assert!(given("ModuleNotFoundError: No module named 'numpy'").contains("shell_execute"));
        assert!(given("ModuleNotFoundError: No module named 'random'").contains("`globals`"));
        assert!(advice("ModuleNotFoundError: No module named 'numpy'", false).unwrap().contains("backend podman"));
        for own in ["ValueError: no", "NameError: name 'x' is not defined", "SyntaxError: invalid syntax", "KeyError"] {
            assert_eq!(given(own), "", "{own}");
        }
    }
}
