//! The commands that documents, help, messages and the page name are those of this program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::definition;

#[expect(clippy::disallowed_methods, reason = "the test reads the documents")]
fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "the test reads the documents")]
fn files(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files(&path, ending, found),
            false if path.extension() == Some(OsStr::new(ending)) => found.push(path),
            false => {}
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let others = ["README.md", "CONTRIBUTING.md", "python/README.md", "typescript/README.md", "integrations/README.md"];
    let mut found: Vec<PathBuf> = others.iter().map(|name| root().join(name)).collect();
    files(&root().join("docs"), "md", &mut found);
    // Decisions describe earlier states, and a file of the format begins with the program's name.
    found.retain(|path| !path.ends_with("FORMAT.md") && !path.components().any(|part| part.as_os_str() == "decisions"));
    found
}

/// Splits a command line as a shell does, up to a comment, a pipe, a redirection or the next command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '|' | '&' | ';' | '>' | '<' | ')') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Returns the command lines of a Markdown text: in its blocks for a shell, and quoted in its sentences.
fn commands(markdown: &str) -> Vec<String> {
    let (mut found, mut shell, mut prose) = (Vec::new(), None::<bool>, String::new());
    let joined = markdown.replace("\\\n", " ");
    for line in joined.lines() {
        match (shell, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => shell = Some(["sh", "console"].contains(&language)),
            (Some(_), Some(_)) => shell = None,
            (None, None) => prose.extend([if line.is_empty() { "\n" } else { line }, " "]),
            (Some(false), None) => {}
            (Some(true), None) => {
                let line = line.trim_start().trim_start_matches("$ ");
                found.extend(line.starts_with("foldspace ").then(|| line.to_owned()));
            }
        }
    }
    prose.lines().for_each(|paragraph| found.extend(quoted(paragraph)));
    found
}

fn quoted(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.filter(|part| part.starts_with("foldspace ")).map(str::to_owned).collect()
}

/// Returns the problem of a command line that does not parse. Words in capitals stand for values, and a session may be
/// left out.
fn problem(line: &str, place: &str) -> Option<String> {
    let words = words(line);
    let stands = |word: &String| word.contains("...") || word.bytes().any(|b| b.is_ascii_uppercase());
    let parsed = definition().try_get_matches_from(words.iter().filter(|word| *word != "..." && *word != "\u{2026}"));
    // Agents call this one; it is parsed before all others.
    let error = parsed.err().filter(|_| words.get(1).is_none_or(|name| name != "hook" && name != "help"))?;
    let is_right = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::MissingRequiredArgument => true,
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            words.iter().any(stands) || words.last().is_some_and(|last| last.starts_with("--"))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => true,
        _ => false,
    };
    let reason = error.to_string();
    (!is_right).then(|| format!("{place}: {line}\n  {}", reason.lines().next().unwrap_or_default()))
}

/// Checks that command lines parse, and that there are more than `least` of them.
fn assert_parse(lines: &[(String, String)], least: usize) {
    let wrong: Vec<String> = lines.iter().filter_map(|(line, place)| problem(line, place)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines.len() > least, "only {} commands were found", lines.len());
}

#[test]
fn documented_commands_parse() {
    let lines = documents().into_iter().flat_map(|path| {
        let place = path.display().to_string();
        commands(&text(&path)).into_iter().map(move |line| (line, place.clone()))
    });
    assert_parse(&lines.collect::<Vec<_>>(), 150);
}

#[test]
fn commands_in_help_parse() {
    let (mut definition, mut lines) = (definition(), Vec::new());
    definition.build();
    for command in definition.get_subcommands_mut() {
        let (name, help) = (command.get_name().to_owned(), command.render_long_help().to_string());
        lines.extend(quoted(&help).into_iter().map(|line| (line, name.clone())));
        let examples = help.lines().filter_map(|line| Some(&line[line.find("foldspace ")?..]));
        let is_example = |line: &&str| !line.contains(['`', '<']) && !line.contains("[OPTIONS]");
        let alone = |line: &str| line.split_once("  ").map_or(line, |(line, _)| line).to_owned();
        lines.extend(examples.filter(is_example).map(|line| (alone(line), name.clone())));
    }
    assert_parse(&lines, 50);
}

#[test]
fn commands_in_messages_parse() {
    let (mut sources, mut lines) = (Vec::new(), Vec::new());
    files(&root().join("src"), "rs", &mut sources);
    for path in sources {
        let source = text(&path);
        // What a test expects is checked where it is printed.
        let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let joined: Vec<&str> = source.split("\\\n").map(str::trim_start).collect();
        for line in joined.concat().lines() {
            let named = quoted(line).into_iter().filter(|line| !line.contains(['{', '\\']));
            lines.extend(named.map(|line| (line, path.display().to_string())));
        }
    }
    assert_parse(&lines, 60);
}

#[test]
fn commands_on_the_page_exist() {
    let mut scripts = Vec::new();
    files(&root().join("web"), "js", &mut scripts);
    let (mut count, mut definition) = (0, definition());
    definition.build();
    for path in scripts {
        let script = text(&path);
        for (at, _) in script.match_indices("foldspace ") {
            let rest = &script[at + "foldspace ".len()..];
            let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            let line = rest.lines().next().and_then(|line| line.split("foldspace ").next()).unwrap_or_default();
            let Some(command) = definition.find_subcommand(&name) else { continue };
            for option in line.split("--").skip(1) {
                let option: String = option.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                let mut known = command.get_arguments().chain(definition.get_arguments());
                let is_known = option.is_empty() || known.any(|known| known.get_long() == Some(option.as_str()));
                assert!(is_known, "{}: foldspace {name} --{option}", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 8, "only {count} commands were found");
}
