//! Rules that find effects outside of the workspace in known commands, and their outcomes.

use super::effect_requests::{method, of_request};
use super::effect_text::{effect, without_secrets};
use super::judge::Judge;
use super::words::{Simple, SplitScript, base_name, has, shown};
use super::wrappers::{Runs, runs};
use crate::backends::ShellCommand;
use crate::engine::event::{CommandLine, EffectOutcome, ExternalEffect};

/// Subcommands that have effects, by program, with advice about undoing them.
const SUBCOMMANDS: [(&str, &str, &str); 15] = [
    ("cargo", "publish yank", "`cargo yank` withdraws a version"),
    ("npm pnpm yarn bun", "publish unpublish deprecate dist-tag", "`npm unpublish` works within 72 hours"),
    ("twine", "upload", ""),
    ("uv poetry hatch flit pdm maturin", "publish upload", ""),
    ("gem", "push yank", "`gem yank` withdraws a version"),
    ("docker podman nerdctl buildah crane", "push", ""),
    ("skopeo", "copy sync delete", ""),
    ("helm", "install upgrade uninstall rollback push", "`helm rollback` returns to an earlier release"),
    ("terraform tofu", "apply destroy import", ""),
    ("pulumi", "up destroy", ""),
    (
        "kubectl oc",
        "apply create delete replace patch scale set label annotate edit drain cordon uncordon taint rollout run expose",
        "",
    ),
    ("fly flyctl vercel netlify firebase heroku wrangler", "deploy", ""),
    ("hg", "push", ""),
    ("svn", "commit ci", ""),
    ("gsutil", "rm", ""),
];
/// Programs with groups of subcommands: the groups, and the verbs that have effects.
const GROUPED: [(&str, &str, &str); 7] = [
    ("gh glab", "pr mr issue", "create merge close reopen comment note edit update review ready delete transfer lock"),
    ("gh glab", "release repo gist label", "create delete edit upload rename archive fork sync"),
    ("gh glab", "workflow run ci", "run rerun cancel delete enable disable trigger retry"),
    ("gh glab", "secret variable ssh-key gpg-key cache", "set add delete"),
    ("docker podman", "image compose manifest", "push"),
    ("yarn", "npm", "publish"),
    ("pnpm yarn", "workspace", "publish"),
];
/// Programs with tasks in any place, of which some have effects.
const TASKS: &str = "mvn mvnw gradle gradlew";
const CLOUDS: &str = "gcloud az";
const CLOUD_VERBS: &str = "create delete update deploy add remove import start stop restart reset submit apply";
const OWN_GROUPS: &str = "config auth account login logout info version components";
/// Other programs that have effects, or run others.
const OTHERS: &str = "git curl wget http xh aws ssh scp rsync mail mutt msmtp npx bunx pipx python";
/// Options of such programs that take the next word.
const WITH_VALUES: &str = "-n --namespace --context --kubeconfig -H --host --config -C --profile --region --project --prefix --cwd --dir -R \
    --repo --manifest-path --endpoint-url --output --query -w --workspace --filter -F --file --env-file --package -p";
const SSH_VALUES: &str = "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -P -p -Q -R -S -W -w";
const PUSH_VALUES: &str = "-o --push-option --receive-pack --exec --repo";
/// Beginnings of the verbs of `aws` that only read.
const READING: [&str; 19] = [
    "describe-",
    "list-",
    "get-",
    "head-",
    "ls",
    "wait",
    "help",
    "presign",
    "filter-",
    "lookup-",
    "batch-get-",
    "query",
    "scan",
    "tail",
    "select-",
    "search",
    "validate-",
    "simulate-",
    "test-",
];
const PUSHED: &str = "`git push --force` with the earlier commit replaces it";
/// The operands that name a place.
const OPERANDS: usize = 3;
/// The most programs that run one another.
const DEPTH: usize = 8;

/// Returns the effects that a command has if it succeeds, with the outcome `unknown`.
pub(crate) fn effects_of(command: &ShellCommand) -> Vec<ExternalEffect> {
    let mut found: Vec<ExternalEffect> = Vec::new();
    let (text, stdin) = (command.command.to_string(), String::from_utf8_lossy(&command.stdin));
    let grouped = GROUPED.iter().map(|(programs, ..)| *programs);
    let programs = SUBCOMMANDS.iter().map(|(programs, ..)| *programs).chain(grouped).chain([OTHERS, TASKS, CLOUDS]);
    let is_named = |program: &str| text.contains(program) || stdin.contains(program);
    if !programs.flat_map(|programs| programs.split(' ')).any(is_named) {
        return found;
    }
    let mut judge = Judge::new(&[], command);
    // What is too complex to be judged does not run.
    if judge.look(command).is_err() {
        return found;
    }
    for program in &judge.found {
        let effect = of_words(&shown_words(&program.words), 0);
        found.extend(effect.filter(|effect| !found.contains(effect)));
    }
    found
}

/// Sets the outcomes of a command's effects, by its exit code; `None` if it was ended or lost.
pub(crate) fn settle(effects: &mut [ExternalEffect], line: &CommandLine, exit_code: Option<i32>) {
    let Some(exit_code) = exit_code else { return };
    let split = match line {
        CommandLine::Args(words) => {
            let command = Simple { words: words.clone(), ..Simple::default() };
            SplitScript { commands: vec![command], ..SplitScript::default() }
        }
        CommandLine::Shell(text) => SplitScript::read(text.trim_end()),
        CommandLine::Script { .. } => return,
    };
    let text = if let CommandLine::Shell(text) = line { text.trim_end() } else { "" };
    // Conditions, loops, functions, `!` and `&` skip a command or hide its exit code.
    let is_plain = split.unplain.is_none()
        && !split.defines
        && !text.contains("||")
        && !text.replace("&&", "").contains('&')
        && !text.split_whitespace().any(|word| word == "!");
    if !is_plain {
        return;
    }
    let direct: Vec<Option<ExternalEffect>> = split
        .commands
        .iter()
        .map(|command| directly(&shown_words(&command.words)).filter(|_| !command.piped))
        .collect();
    let is_chain = !text.contains([';', '\n']);
    // A wrapper such as `timeout` adds its own exit codes.
    let is_bare = matches!(split.commands.as_slice(), [only] if of_words(&shown_words(&only.words), 0).is_some());
    for effect in effects {
        let is_it = |one: &Option<ExternalEffect>| one.as_ref() == Some(&*effect);
        let (is_direct, is_last) = (direct.iter().any(is_it), direct.last().is_some_and(is_it));
        effect.outcome = match exit_code {
            0 if is_direct && (is_chain || is_last) => EffectOutcome::Done,
            1.. if is_last && is_bare && never_began(effect, exit_code) => EffectOutcome::Failed,
            _ => EffectOutcome::Unknown,
        };
    }
}

/// Returns true if an exit code says that nothing took place. A part of most effects may have.
fn never_began(effect: &ExternalEffect, exit_code: i32) -> bool {
    match effect.what.split(' ').next().unwrap_or_default() {
        // One ref, which was refused, or not sent.
        "git" => effect.what == "git push" && exit_code <= 128 && effect.target.split(' ').count() <= 2,
        // No such host. Other codes may come from a second request, after a redirect.
        "curl" => exit_code == 6,
        _ => matches!(exit_code, 126 | 127),
    }
}

/// Returns the effect of a simple command that exits with the code of the effect's program.
fn directly(words: &[String]) -> Option<ExternalEffect> {
    let (program, arguments) = words.split_first()?;
    match runs(program, arguments) {
        Runs::Nothing => of_words(words, 0),
        Runs::Programs(programs, true) => match programs.as_slice() {
            [only] => directly(only),
            _ => None,
        },
        _ => None,
    }
}

fn shown_words(words: &[String]) -> Vec<String> {
    words.iter().map(|word| shown(word)).collect()
}

/// Returns the words that are neither options nor the values of these.
fn operands<'a>(arguments: &'a [String], with_values: &str) -> Vec<&'a str> {
    let (mut found, mut skips) = (Vec::new(), false);
    for word in arguments {
        if std::mem::take(&mut skips) {
            continue;
        }
        skips = has(with_values, word);
        if word == "-" || !word.starts_with(['-', '+']) {
            found.push(word.as_str());
        }
    }
    found
}

fn places(operands: &[&str]) -> String {
    operands.iter().take(OPERANDS).map(|word| without_secrets(word)).collect::<Vec<_>>().join(" ")
}

fn of_words(words: &[String], depth: usize) -> Option<ExternalEffect> {
    let (program, arguments) = words.split_first().filter(|_| depth < DEPTH)?;
    let program = base_name(program);
    let said = |option: &str| arguments.iter().any(|word| word == option);
    let is_dry = |word: &String| word.starts_with("--dry-run") && word != "--dry-run=none";
    if said("--help") || arguments.first().is_some_and(|word| word == "help") || arguments.iter().any(is_dry) {
        return None;
    }
    if let Some(inner) = inner(program, arguments) {
        return of_words(inner, depth + 1);
    }
    let words = operands(arguments, WITH_VALUES);
    match program {
        "git" => of_git(arguments),
        "curl" | "wget" | "http" | "https" | "xh" => of_request(program, arguments),
        "aws" => of_aws(arguments, &words),
        "gh" if words.first() == Some(&"api") => of_gh_api(arguments),
        "docker" if (words.starts_with(&["buildx"]) || words.starts_with(&["build"])) && said("--push") => {
            effect("docker build --push", "", "")
        }
        "vercel" if said("--prod") => effect("vercel --prod", "", ""),
        "gsutil" if has("cp mv rsync", words.first()?) => {
            let to = words.last().filter(|word| word.starts_with("gs://"))?;
            effect(&format!("gsutil {}", words.first()?), to, "")
        }
        "ssh" => effect("ssh", operands(arguments, SSH_VALUES).first()?, ""),
        "rsync"
            if arguments.iter().any(|word| !word.starts_with("--") && word.starts_with('-') && word.contains('n')) =>
        {
            None
        }
        "scp" | "rsync" => {
            let words = operands(arguments, SSH_VALUES);
            effect(program, words.last().filter(|word| word.contains(':'))?, "")
        }
        "sendmail" | "mail" | "mutt" | "msmtp" => effect(program, "", ""),
        _ if has(TASKS, program) => of_task(program, &words),
        _ if has(CLOUDS, program) => of_cloud(program, arguments, &words),
        _ => of_group(program, arguments, &words).or_else(|| of_subcommand(program, arguments, &words)),
    }
}

/// Returns the command that a program runs, which the policy does not count among the wrappers.
fn inner<'a>(program: &str, arguments: &'a [String]) -> Option<&'a [String]> {
    let after_options = |from: usize| {
        let rest = arguments.get(from..)?;
        rest.get(rest.iter().position(|word| !word.starts_with('-'))?..)
    };
    match program {
        "npx" | "bunx" => after_options(0),
        "uv" | "poetry" | "pipx" | "pdm" | "hatch" if arguments.first().is_some_and(|word| word == "run") => {
            after_options(1)
        }
        _ if program.starts_with("python") => {
            let at = arguments.iter().position(|word| word == "-m")?;
            arguments.get(at + 1..)
        }
        _ => None,
    }
}

fn of_group(program: &str, arguments: &[String], words: &[&str]) -> Option<ExternalEffect> {
    let (group, verb) = (words.first()?, words.iter().skip(1).find(|word| has_verb(program, words[0], word))?);
    // `yarn workspace NAME publish`; elsewhere the verb follows the group.
    let is_next = words.get(1) == Some(verb) || *group == "workspace";
    is_next.then(|| effect(&format!("{program} {group} {verb}"), &place_after(arguments, verb), ""))?
}

fn has_verb(program: &str, group: &str, verb: &str) -> bool {
    GROUPED.iter().any(|(programs, groups, verbs)| has(programs, program) && has(groups, group) && has(verbs, verb))
}

fn of_subcommand(program: &str, arguments: &[String], words: &[&str]) -> Option<ExternalEffect> {
    let (_, verbs, undo) = SUBCOMMANDS.iter().find(|(programs, ..)| has(programs, program))?;
    let verb = words.first().filter(|word| has(verbs, word))?;
    if *verb == "rollout" && !words.get(1).is_some_and(|word| has("restart undo pause resume", word)) {
        return None;
    }
    effect(&format!("{program} {verb}"), &place_after(arguments, verb), undo)
}

fn of_task(program: &str, words: &[&str]) -> Option<ExternalEffect> {
    let is_effect = |word: &&&str| has("deploy publish", word.rsplit(':').next().unwrap_or(word));
    effect(&format!("{program} {}", words.iter().find(is_effect)?), "", "")
}

fn of_cloud(program: &str, arguments: &[String], words: &[&str]) -> Option<ExternalEffect> {
    if has(OWN_GROUPS, words.first()?) {
        return None;
    }
    let at = words.iter().take(5).position(|word| has(CLOUD_VERBS, word))?;
    let what = words.get(..=at)?.join(" ");
    effect(&format!("{program} {what}"), &place_after(arguments, words.get(at)?), "")
}

/// Returns the words after a verb, up to its first option, or else the file that it names.
fn place_after(arguments: &[String], verb: &str) -> String {
    let after = arguments.iter().position(|word| word == verb).map_or(arguments.len(), |at| at + 1);
    let rest: Vec<&str> = arguments.iter().skip(after).map(String::as_str).collect();
    let words: Vec<&str> = rest.iter().take_while(|word| !word.starts_with('-')).copied().collect();
    let file = rest.iter().position(|word| matches!(*word, "-f" | "--filename"));
    let file = file.and_then(|at| rest.get(at + 1).copied());
    places(if words.is_empty() { file.as_slice() } else { &words })
}

fn of_git(arguments: &[String]) -> Option<ExternalEffect> {
    let words = operands(arguments, "-C -c --git-dir --work-tree --namespace");
    let verb = *words.first()?;
    let rest = arguments.get(arguments.iter().position(|word| word == verb)? + 1..)?;
    match (verb, words.get(1).copied()) {
        ("push", _) if !rest.iter().any(|word| word == "-n") => {
            effect("git push", &places(&operands(rest, PUSH_VALUES)), PUSHED)
        }
        ("subtree" | "lfs", Some("push")) => effect(&format!("git {verb} push"), "", ""),
        ("send-email", _) => effect("git send-email", "", ""),
        ("svn", Some("dcommit")) => effect("git svn dcommit", "", ""),
        _ => None,
    }
}

fn of_gh_api(arguments: &[String]) -> Option<ExternalEffect> {
    let is_field = |word: &String| matches!(word.as_str(), "-f" | "-F" | "--field" | "--raw-field" | "--input");
    let words = operands(arguments, "-X --method -f -F --field --raw-field --input -H --header -q --jq -t --template");
    let place = *words.get(1)?;
    let method = method(arguments).or(arguments.iter().any(is_field).then_some("POST"))?;
    let reads = place == "graphql" && !arguments.iter().any(|word| word.contains("mutation"));
    (method != "GET" && !reads).then(|| effect(&format!("gh api {method}"), place, ""))?
}

fn of_aws(arguments: &[String], words: &[&str]) -> Option<ExternalEffect> {
    let (service, verb) = (*words.first()?, *words.get(1)?);
    if has("configure sso sts", service) || READING.iter().any(|start| verb.starts_with(start)) {
        return None;
    }
    let rest = words.get(2..)?;
    // A download changes nothing there.
    let is_download = service == "s3" && has("cp sync", verb) && !rest.last()?.starts_with("s3://");
    let place = if service == "s3" { places(rest) } else { place_after(arguments, verb) };
    (!is_download).then(|| effect(&format!("aws {service} {verb}"), &place, ""))?
}
