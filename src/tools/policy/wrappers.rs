//! Programs that run other programs: what they run, read from their arguments.

use super::find::command_length;
use super::shell::Reading;
use super::shell::marker;

/// How a wrapper's own options end and the program begins.
struct Wrapper {
    name: &'static str,
    /// Short options that take a value.
    short: &'static str,
    /// Long options that take one as the next word.
    long: &'static [&'static str],
    /// Words of its own before the program.
    operands: usize,
}

const fn wrapper(name: &'static str, short: &'static str, long: &'static [&'static str], operands: usize) -> Wrapper {
    Wrapper { name, short, long, operands }
}

const WRAPPERS: [Wrapper; 38] = [
    wrapper("builtin", "", &[], 0),
    wrapper("busybox", "", &[], 0),
    wrapper("chronic", "", &[], 0),
    wrapper("chroot", "", &["--groups", "--userspec"], 1),
    wrapper("chrt", "TPD", &[], 1),
    wrapper("command", "", &[], 0),
    wrapper("dbus-run-session", "", &["--config-file"], 0),
    wrapper("doas", "uC", &[], 0),
    wrapper("env", "uCS", &["--unset", "--chdir"], 0),
    wrapper("exec", "a", &[], 0),
    wrapper("fakeroot", "lsbi", &[], 0),
    wrapper("flock", "wEc", &["--timeout", "--wait", "--conflict-exit-code"], 1),
    wrapper("ionice", "cnpPu", &["--class", "--classdata"], 0),
    wrapper("linux32", "", &[], 0),
    wrapper("linux64", "", &[], 0),
    wrapper("ltrace", "aeEFlnopsuwx", &[], 0),
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("nsenter", "tSG", &["--target", "--setuid", "--setgid"], 0),
    wrapper("parallel", "jNnLaSI", &["--jobs", "--arg-file", "--delay", "--timeout"], 0),
    wrapper("prlimit", "po", &["--pid", "--output"], 0),
    wrapper("rlwrap", "", &[], 0),
    wrapper("runuser", "cgGsuw", &["--user", "--group", "--supp-group", "--shell"], 0),
    wrapper("setarch", "", &[], 1),
    wrapper("setpriv", "", &["--reuid", "--regid", "--groups"], 0),
    wrapper("setsid", "", &[], 0),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    wrapper("strace", "aeEIoOpPsSuUX", &["--output", "--trace"], 0),
    wrapper("sudo", "ugpChrtTUDR", &["--user", "--group", "--prompt", "--chdir", "--chroot", "--host"], 0),
    wrapper("systemd-run", "pEuMHt", &["--property", "--unit", "--setenv"], 0),
    wrapper("taskset", "", &[], 1),
    wrapper("time", "fo", &["--format", "--output"], 0),
    wrapper("timeout", "sk", &["--signal", "--kill-after"], 1),
    wrapper("toybox", "", &[], 0),
    wrapper("unbuffer", "", &[], 0),
    wrapper("unshare", "SGRw", &["--setuid", "--setgid", "--root", "--wd"], 0),
    wrapper("watch", "nq", &["--interval", "--equexit"], 0),
    wrapper("xargs", "adEILnPs", &["--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-lines"], 0),
];

/// Long options that are known to take no value.
const PLAIN_LONG: [&str; 19] = [
    "--background",
    "--differences",
    "--errexit",
    "--exec",
    "--foreground",
    "--ignore-environment",
    "--line-buffer",
    "--login",
    "--no-run-if-empty",
    "--non-interactive",
    "--null",
    "--open-tty",
    "--portability",
    "--preserve-env",
    "--preserve-status",
    "--set-home",
    "--stdin",
    "--verbose",
    "--will-cite",
];

/// Shells that run text; a version may follow.
const SHELLS: [&str; 21] = [
    "ash", "bash", "csh", "dash", "elvish", "fish", "hush", "ksh", "lksh", "mksh", "nu", "oksh", "posh", "pwsh",
    "rbash", "rksh", "rzsh", "sh", "tcsh", "yash", "zsh",
];

/// What a program runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// A program with its arguments.
    Words(Vec<String>),
    /// Shell text, with the words that it knows as `$0`, `$1` and so on.
    Text { text: String, reading: Reading, arguments: Vec<String>, same_shell: bool },
    /// Commands that it reads from its standard input.
    Stdin(Reading),
    /// A file of commands.
    File(String),
    /// Shell text with each of these values, and with each line of its standard input.
    Each { text: String, values: Vec<String>, reading: Reading },
    /// Something that was not understood.
    Unclear,
    /// The program may begin at any of its words.
    Anywhere,
}

/// Whether the program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    let plain = name.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    SHELLS.contains(&plain)
}

/// Whether the program runs the one in its arguments.
pub(super) fn is_wrapper(name: &str) -> bool {
    is_shell(name) || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
}

/// How a shell reads its text.
pub(super) fn reading_of(shell: &str, outer: Reading) -> Reading {
    match shell {
        "sh" | "ash" => outer,
        "dash" => Reading::Posix,
        _ => Reading::Bash,
    }
}

/// What a program runs besides itself.
pub(super) fn runs(name: &str, arguments: &[String], outer: Reading) -> Vec<Runs> {
    match name {
        name if is_shell(name) => vec![shell(arguments, reading_of(name, outer))],
        "eval" => vec![text(arguments.join(" "), outer, true)],
        "trap" | "alias" => scripts_of(name, arguments, outer),
        "source" | "." => vec![file(arguments.first())],
        "su" | "script" => dash_c(arguments, outer),
        "runuser" if arguments.iter().take_while(|word| *word != "--").any(|word| is_c(word)) => {
            dash_c(arguments, outer)
        }
        "find" => find(arguments),
        "watch" => match after_options(name, arguments) {
            (rest, clear) if !rest.is_empty() => with_clarity(text(rest.join(" "), outer, false), clear),
            _ => Vec::new(),
        },
        "command"
            if arguments.iter().take_while(|word| word.starts_with('-')).any(|word| word.contains(['v', 'V'])) =>
        {
            Vec::new()
        }
        "env" if arguments.iter().any(|word| word.starts_with("-S") || word.starts_with("--split-string")) => {
            let mut words: Vec<&str> = arguments.iter().map(|word| word.trim_start_matches("-S")).collect();
            words.iter_mut().for_each(|word| *word = word.trim_start_matches("--split-string=").trim_start());
            vec![text(format!("env {}", words.join(" ")), outer, false)]
        }
        "flock" if arguments.iter().any(|word| word == "-c" || word == "--command") => dash_c(arguments, outer),
        "parallel" => {
            let (rest, clear) = after_options(name, arguments);
            let is_mark = |word: &&String| word.starts_with(":::");
            let command: Vec<_> = rest.iter().take_while(|word| !is_mark(word)).map(String::as_str).collect();
            let values = rest.iter().skip(command.len()).filter(|word| !is_mark(word)).cloned().collect();
            with_clarity(Runs::Each { text: command.join(" "), values, reading: outer }, clear)
        }
        name => match after_options(name, arguments) {
            (rest, clear) if !rest.is_empty() => with_clarity(Runs::Words(rest.to_vec()), clear),
            (_, true) => Vec::new(),
            (_, false) => vec![Runs::Anywhere],
        },
    }
}

fn with_clarity(runs: Runs, clear: bool) -> Vec<Runs> {
    if clear { vec![runs] } else { vec![runs, Runs::Anywhere] }
}

fn text(text: String, reading: Reading, same_shell: bool) -> Runs {
    Runs::Text { text: marker::written(&text), reading, arguments: Vec::new(), same_shell }
}

fn file(path: Option<&String>) -> Runs {
    match path {
        Some(path) => Runs::File(path.clone()),
        None => Runs::Unclear,
    }
}

/// The words from the program on, and whether all before it was understood.
fn after_options<'a>(name: &str, arguments: &'a [String]) -> (&'a [String], bool) {
    let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) else { return (&[], true) };
    let mut at = 0;
    let mut clear = true;
    while let Some(word) = arguments.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if word.starts_with("--") {
            let value = wrapper.long.contains(&word.as_str());
            clear &= value || word.contains('=') || PLAIN_LONG.contains(&word.as_str());
            at += 1 + usize::from(value);
        } else if let Some(letters) = word.strip_prefix('-') {
            let value = letters.find(|letter| wrapper.short.contains(letter));
            let attached = value.is_none_or(|at| at + 1 < letters.len());
            at += 1 + usize::from(!attached);
        } else if matches!(name, "env" | "sudo" | "doas") && word.contains('=') {
            at += 1;
        } else if word.starts_with(marker::UNKNOWN) {
            clear = false;
            at += 1;
        } else {
            break;
        }
    }
    let start = (at + wrapper.operands).min(arguments.len());
    (&arguments[start..], clear)
}

/// What a shell does with its arguments.
fn shell(arguments: &[String], reading: Reading) -> Runs {
    let mut at = 0;
    let mut takes_text = false;
    let mut from_stdin = false;
    while let Some(word) = arguments.get(at) {
        let is_option = word.len() > 1 && word.starts_with(['-', '+']) && word != "--";
        if !is_option {
            at += usize::from(word == "--" || word == "-");
            break;
        }
        at += 1;
        if word.starts_with("--") {
            at += usize::from(matches!(word.as_str(), "--rcfile" | "--init-file"));
            continue;
        }
        takes_text |= word.starts_with('-') && word.contains('c');
        from_stdin |= word.starts_with('-') && word.contains('s');
        at += usize::from(word.ends_with(['o', 'O']));
    }
    let rest = arguments.get(at..).unwrap_or_default();
    match rest.split_first() {
        Some((first, arguments)) if takes_text => {
            Runs::Text { text: marker::written(first), reading, arguments: arguments.to_vec(), same_shell: false }
        }
        Some((first, _)) if !from_stdin => match is_stdin(first) {
            true => Runs::Stdin(reading),
            false => Runs::File(first.clone()),
        },
        _ => Runs::Stdin(reading),
    }
}

/// Whether a path is the standard input.
pub(super) fn is_stdin(path: &str) -> bool {
    matches!(path, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

fn scripts_of(name: &str, arguments: &[String], reading: Reading) -> Vec<Runs> {
    let scripts: Vec<&str> = match name {
        "trap" => arguments.iter().find(|word| !word.starts_with('-')).map(String::as_str).into_iter().collect(),
        _ => arguments.iter().filter_map(|word| word.split_once('=')).map(|(_, script)| script).collect(),
    };
    // An alias may change how the rest of the text is read.
    let unclear = (name == "alias" && !scripts.is_empty()).then_some(Runs::Unclear);
    scripts.into_iter().map(|script| text(script.to_owned(), reading, true)).chain(unclear).collect()
}

/// The text after `-c`, wherever that stands.
fn dash_c(arguments: &[String], reading: Reading) -> Vec<Runs> {
    let attached = arguments.iter().find_map(|word| word.strip_prefix("--command="));
    let next = arguments.iter().position(|word| is_c(word)).and_then(|at| arguments.get(at + 1)).map(String::as_str);
    match attached.or(next) {
        Some(script) => vec![text(script.to_owned(), reading, false)],
        None => vec![Runs::Anywhere],
    }
}

/// Whether an option is `-c`, perhaps with others before it.
fn is_c(word: &str) -> bool {
    word.starts_with("--command") || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
}

/// The directory in which a wrapper runs its program, where it names one.
pub(super) fn directory_of<'a>(name: &str, options: &'a [String]) -> Option<&'a str> {
    let short = match name {
        "chroot" => return Some("/"),
        "env" => "-C",
        "sudo" => "-D",
        "unshare" | "nsenter" => "-w",
        "systemd-run" => "-",
        _ => return None,
    };
    let is_long = |word: &str| matches!(word, "--chdir" | "--wd" | "--working-directory");
    let mut found = None;
    for (at, word) in options.iter().enumerate() {
        let next = options.get(at + 1).map(String::as_str);
        found = match word.split_once('=') {
            Some((long, value)) if is_long(long) => Some(value),
            _ if is_long(word) || word == short => next,
            _ => word.strip_prefix(short).filter(|value| short.len() > 1 && !value.is_empty()).or(found),
        };
    }
    found
}

/// What `xargs` puts its input in place of, where it does not append it.
pub(super) fn replaced_by_xargs(options: &[String]) -> Option<&str> {
    let mut found = None;
    for (at, word) in options.iter().enumerate() {
        found = match word.as_str() {
            "-I" => options.get(at + 1).map(String::as_str),
            "-i" | "--replace" => Some("{}"),
            word => word
                .strip_prefix("-I")
                .or_else(|| word.strip_prefix("-i"))
                .or_else(|| word.strip_prefix("--replace="))
                .or(found),
        };
    }
    found.filter(|mark| !mark.is_empty())
}

/// The programs that `find` runs.
fn find(arguments: &[String]) -> Vec<Runs> {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        if !matches!(word.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let rest = &arguments[at..];
        let length = command_length(rest);
        runs.push(Runs::Words(rest[..length].to_vec()));
        at += length;
    }
    runs
}
