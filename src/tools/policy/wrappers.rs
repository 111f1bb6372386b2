//! Programs that run other programs: what they run, read from their arguments.

use super::dangers::programs;
use super::words::{base_name, has, marker};

/// Wrappers; behind each the short options that take a value, or `-`, and the words of its own before the program.
const WRAPPERS: &str = "builtin - 0 busybox - 0 chronic - 0 chroot - 1 chrt TPD 1 command - 0 dbus-run-session - 0 \
    doas uC 0 env uCS 0 exec a 0 fakeroot lsbi 0 flock wEc 1 ionice cnpPu 0 linux32 - 0 linux64 - 0 \
    ltrace aeEFlnopsuwx 0 nice n 0 nohup - 0 nsenter tSG 0 prlimit po 0 rlwrap - 0 \
    runuser cgGsuw 0 setarch - 1 setpriv - 0 setsid - 0 stdbuf ioe 0 strace aeEIoOpPsSuUX 0 sudo ugpChrtTUDR 0 \
    systemd-run pEuMHt 0 taskset - 1 time fo 0 timeout sk 1 toybox - 0 unbuffer - 0 unshare SGRw 0 watch nq 0 \
    xargs adEILnPs 0";
/// Long options of wrappers that take a value as the next word, and such as take none.
const LONG_VALUES: &str = "--adjustment --arg-file --chdir --chroot --class --classdata --config-file --conflict-exit-code \
    --delay --delimiter --equexit --error --format --group --groups --host --input --interval --jobs --kill-after \
    --max-args --max-lines --max-procs --output --pid --prompt --property --regid --reuid --root --setenv --setgid \
    --setuid --shell --signal --supp-group --target --timeout --trace --unit --unset --user --userspec --wait --wd";
const LONG_PLAIN: &str = "--background --differences --errexit --exec --foreground --ignore-environment --line-buffer \
    --login --no-run-if-empty --non-interactive --null --open-tty --portability --preserve-env --preserve-status \
    --set-home --stdin --verbose --will-cite";
/// Shells that run text; a version may follow.
const SHELLS: &str =
    "ash bash csh dash elvish fish hush ksh lksh mksh nu oksh posh pwsh rbash rksh rzsh sh tcsh yash zsh";
/// Interpreters other than shells; a version may follow.
const INTERPRETERS: &str = "bun deno lua node nodejs perl php python ruby tclsh";
/// Builtins that run text in the same shell, now or later, or change what later words mean.
pub(super) const EVALUATORS: &str = "alias bind compgen complete enable eval hash let trap";

/// What a program runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// Nothing but itself.
    Nothing,
    /// The program from this word on; whether all before it was understood.
    From(usize, bool),
    /// Several programs, as `find` does.
    Each(Vec<Vec<String>>),
    /// Shell text.
    Text(String),
    /// Its input, as shell text.
    Stdin,
    /// Its input, as code of another language.
    Code,
    /// A file of commands.
    File(String),
    /// Something that was not understood.
    Unclear,
}

/// Whether the program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    has(SHELLS, name.trim_start_matches('-').trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')))
}

/// Whether the program runs the one in its arguments.
pub(super) fn is_wrapper(name: &str) -> bool {
    is_shell(name) || wrapper(name).is_some()
}

fn wrapper(name: &str) -> Option<(&'static str, usize)> {
    let mut words = WRAPPERS.split_whitespace();
    while let (Some(known), Some(short), Some(own)) = (words.next(), words.next(), words.next()) {
        if known == name {
            return Some((short, usize::from(own == "1")));
        }
    }
    None
}

/// What a program runs besides itself.
pub(super) fn runs(name: &str, arguments: &[String]) -> Runs {
    let options = || arguments.iter().take_while(|word| word.starts_with('-') && *word != "--");
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let runs_text = |word: &String| has("-c --command -lc", word) || word.starts_with("--command=");
    match name {
        name if is_shell(name) => shell(arguments),
        "source" | "." => arguments.first().map_or(Runs::Unclear, |path| Runs::File(path.clone())),
        "su" | "script" => dash_c(arguments),
        "runuser" | "flock" if arguments.iter().any(runs_text) => dash_c(arguments),
        "find" => find(arguments),
        "watch" => match after_options(name, arguments) {
            Runs::From(at, _) => Runs::Text(arguments[at..].join(" ")),
            other => other,
        },
        "parallel" => Runs::Unclear,
        "command" if options().any(|word| word.contains(['v', 'V'])) => Runs::Nothing,
        "env" if options().any(|word| word.contains('S') || word.starts_with("--s")) => {
            let split = |word: &String| match word.strip_prefix("--split-string=") {
                Some(text) => text.to_owned(),
                None if !word.starts_with("--") && word.starts_with('-') => {
                    word.split_once('S').map_or(word.clone(), |(_, text)| text.to_owned())
                }
                None => word.clone(),
            };
            Runs::Text(format!("env {}", arguments.iter().map(split).collect::<Vec<_>>().join(" ")))
        }
        _ if has(INTERPRETERS, plain) => code(arguments),
        _ => after_options(name, arguments),
    }
}

/// The place of the program behind a wrapper's own words, and whether these were understood.
fn after_options(name: &str, arguments: &[String]) -> Runs {
    let Some((short, own)) = wrapper(name) else { return Runs::Nothing };
    let mut at = 0;
    let mut clear = true;
    while let Some(word) = arguments.get(at) {
        clear &= !word.contains(marker::is_open);
        if word == "--" {
            at += 1;
            break;
        }
        if word.starts_with("--") {
            let value = has(LONG_VALUES, word);
            clear &= value || word.contains('=') || has(LONG_PLAIN, word);
            at += 1 + usize::from(value);
        } else if let Some(letters) = word.strip_prefix('-') {
            let value = letters.find(|letter| short.contains(letter));
            at += 1 + usize::from(value.is_some_and(|at| at + 1 == letters.len()));
        } else if matches!(name, "env" | "sudo" | "doas") && word.contains('=') {
            at += 1;
        } else {
            break;
        }
    }
    let start = (at + own).min(arguments.len());
    match (start < arguments.len(), clear) {
        (true, clear) => Runs::From(start, clear),
        (false, true) => Runs::Nothing,
        (false, false) => Runs::Unclear,
    }
}

/// What a shell does with its arguments.
fn shell(arguments: &[String]) -> Runs {
    let (mut at, mut takes_text, mut from_stdin) = (0, false, false);
    let is_option = |word: &&String| word.len() > 1 && word.starts_with(['-', '+']) && *word != "--";
    while let Some(word) = arguments.get(at).filter(is_option) {
        at += 1;
        if word.starts_with("--") {
            at += usize::from(matches!(word.as_str(), "--rcfile" | "--init-file"));
            continue;
        }
        takes_text |= word.starts_with('-') && word.contains('c');
        from_stdin |= word.starts_with('-') && word.contains('s');
        at += usize::from(word.ends_with(['o', 'O']));
    }
    at += usize::from(arguments.get(at).is_some_and(|word| word == "--" || word == "-"));
    match arguments.get(at) {
        Some(text) if takes_text => Runs::Text(text.clone()),
        Some(path) if !from_stdin && !is_stdin(path) => Runs::File(path.clone()),
        _ => Runs::Stdin,
    }
}

/// Whether a path is the standard input.
fn is_stdin(path: &str) -> bool {
    has("- /dev/stdin /dev/fd/0 /proc/self/fd/0", path)
}

/// The text after `-c`, wherever that stands.
fn dash_c(arguments: &[String]) -> Runs {
    let is_c = |word: &String| {
        word == "--command" || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
    };
    let attached = arguments.iter().find_map(|word| word.strip_prefix("--command="));
    let next = arguments.iter().position(is_c).and_then(|at| arguments.get(at + 1)).map(String::as_str);
    attached.or(next).map_or(Runs::Unclear, |text| Runs::Text(text.to_owned()))
}

/// Tells what an interpreter runs: its input, where it is given neither code nor a file.
fn code(arguments: &[String]) -> Runs {
    let at = arguments.iter().position(|word| !word.starts_with("--") || matches!(word.as_str(), "--eval" | "--print"));
    let Some((at, word)) = at.map(|at| (at, arguments[at].as_str())).filter(|(_, word)| !is_stdin(word)) else {
        return Runs::Code;
    };
    let code = if word.starts_with('-') { arguments.get(at + 1) } else { None };
    let is_open = |word: &str| word.contains(marker::is_open);
    if is_open(word) || code.is_some_and(|code| is_open(code)) { Runs::Unclear } else { Runs::Nothing }
}

/// The programs that `find` runs.
fn find(arguments: &[String]) -> Runs {
    let given = |word: &String| word.replace("{}", marker::UNKNOWN.encode_utf8(&mut [0; 4]));
    // What is found ends up in a shell's text; other programs take it as it is.
    let in_text = |program: &[String]| program.iter().any(|word| is_shell(base_name(word)));
    let each = |program: &[String]| match in_text(program) {
        true => program.iter().map(given).collect(),
        false => program.to_vec(),
    };
    Runs::Each(programs(arguments).map(each).collect())
}
