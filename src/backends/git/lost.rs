//! Files that a repository still has although its worktree, branches or tags may not. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::UNIX_EPOCH;

use super::{GitRepository, commit_in, git_in, outcome, run};

/// The limit for the commits that are read, newest first, and for the trees without a commit.
const COMMITS_MAX: &str = "--max-count=5000";
const TREES_MAX: usize = 200;

/// A file in a repository's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitFile {
    /// The id of its blob.
    pub id: String,
    /// The path from the top of the worktree; `None` if no commit or tree names the blob.
    pub path: Option<Vec<u8>>,
    /// False if the tree with the path may not be the top of a worktree.
    pub is_sure: bool,
    pub executable: bool,
    /// Seconds since 1970: the time of the commit, or of the loose object.
    pub seconds: Option<i64>,
    /// The commit with its subject, or the kind of object.
    pub origin: String,
}

impl GitRepository {
    /// Lists the files of commits, trees and blobs that no branch or tag leads to, and of the latest stash. Files that
    /// HEAD has at the same path are left out. A damaged repository is read as far as possible.
    pub fn lost_files(&self) -> io::Result<Vec<GitFile>> {
        let loose = ["fsck", "--no-reflogs", "--connectivity-only", "--no-progress", "--dangling"];
        let printed = String::from_utf8_lossy(&self.said(&loose, None)?).into_owned();
        let of_kind = |kind: &str| -> Vec<&str> {
            let lines = printed.lines().filter_map(|line| line.strip_prefix("dangling ")?.split_once(' '));
            lines.filter(|(of, _)| *of == kind).map(|(_, id)| id).collect()
        };
        let tips = [of_kind("commit"), of_kind("tag")].concat().join("\n");
        let lost = ["rev-list", COMMITS_MAX, "--ignore-missing", "--stdin", "--not", "--all"];
        let mut commits = if tips.is_empty() { Vec::new() } else { self.said(&lost, Some(tips.into_bytes()))? };
        for stashed in ["refs/stash", "refs/stash^2", "refs/stash^3"] {
            commits.extend(commit_in(&self.directory, stashed).map(|id| id + "\n").unwrap_or_default().into_bytes());
        }
        let mut lost = self.changed_by(commits)?;
        for tree in of_kind("tree").into_iter().take(TREES_MAX) {
            lost.extend(self.committed(tree).into_iter().map(|file| GitFile { is_sure: false, ..file }));
        }
        let head = self.committed("HEAD");
        let head: BTreeSet<_> = head.iter().map(|file| (&file.path, &file.id)).collect();
        lost.retain(|file| !head.contains(&(&file.path, &file.id)));
        lost.extend(of_kind("blob").into_iter().map(|id| GitFile {
            id: id.to_owned(),
            path: None,
            is_sure: false,
            executable: false,
            seconds: self.stored_at(id),
            origin: format!("blob {}", &id[..id.len().min(9)]),
        }));
        Ok(lost)
    }

    /// Lists the files that the commits of all branches changed.
    pub fn all_files(&self) -> io::Result<Vec<GitFile>> {
        self.changed_by(self.said(&["rev-list", COMMITS_MAX, "--all"], None)?)
    }

    /// Lists the files of HEAD, and other files of the index, except for files outside of a sparse checkout.
    pub fn tracked_files(&self) -> io::Result<Vec<GitFile>> {
        let listed = run(&self.directory, &["ls-files", "-s", "-v", "-z", "--full-name", ":/"], None)?;
        let (sparse, present): (Vec<&[u8]>, Vec<&[u8]>) =
            listed.split(|byte| *byte == 0).partition(|line| line.starts_with(b"S "));
        let sparse: BTreeSet<&[u8]> = sparse.into_iter().filter_map(|line| Some(halves(line)?.1)).collect();
        let mut tracked = self.committed("HEAD");
        tracked.retain(|file| file.path.as_ref().is_none_or(|path| !sparse.contains(&path[..])));
        let head: BTreeSet<_> = tracked.iter().map(|file| (file.path.clone(), file.id.clone())).collect();
        let staged = present.into_iter().filter_map(|line| {
            let (words, path) = halves(line)?;
            let [_, mode, id, "0"] = words[..] else { return None };
            let file = plain(mode, id, path, "index")?;
            (!head.contains(&(file.path.clone(), file.id.clone())))
                .then(|| GitFile { seconds: self.stored_at(id), ..file })
        });
        tracked.extend(staged);
        Ok(tracked)
    }

    /// Adds the times of files without one: of the commit that changed the file to its contents, or of the oldest of
    /// the last commits.
    pub fn date(&self, files: &mut [GitFile]) -> io::Result<()> {
        let changed = self.changed_by(self.said(&["rev-list", "--max-count=1000", "HEAD"], None)?)?;
        let oldest = changed.iter().filter_map(|file| file.seconds).min();
        let mut newest = BTreeMap::new();
        for GitFile { path, id, seconds, .. } in changed {
            newest.entry((path, id)).or_insert(seconds);
        }
        for file in files.iter_mut().filter(|file| file.seconds.is_none()) {
            file.seconds = newest.get(&(file.path.clone(), file.id.clone())).copied().flatten().or(oldest);
        }
        Ok(())
    }

    /// Reads blobs, one at a time. Returns the ids of the blobs over the limit.
    pub fn contents(
        &self,
        ids: impl Iterator<Item = String>,
        max: u64,
        mut take: impl FnMut(&str, Vec<u8>),
    ) -> io::Result<Vec<String>> {
        let mut git = git_in(&self.directory, &["cat-file", "--batch", "--buffer"]);
        let mut process = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (ask, answers) = (process.stdin.take(), process.stdout.take());
        let asked: String = ids.flat_map(|id| [id, "\n".to_owned()]).collect();
        // A separate thread, because git prints before it has read all ids.
        let writer = ask.map(|mut ask| std::thread::spawn(move || ask.write_all(asked.as_bytes())));
        let (mut answers, mut over) = (BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?), Vec::new());
        let mut head = String::new();
        while answers.read_line(&mut head)? > 0 {
            if let [id, _, size] = head.split_whitespace().collect::<Vec<_>>()[..] {
                let size: u64 = size.parse().map_err(io::Error::other)?;
                // A line feed follows.
                let (mut content, mut bytes) = ((&mut answers).take(size + 1), Vec::new());
                if size > max {
                    io::copy(&mut content, &mut io::sink())?;
                    over.push(id.to_owned());
                } else {
                    content.read_to_end(&mut bytes)?;
                    bytes.pop();
                    take(id, bytes);
                }
            }
            head.clear();
        }
        drop(writer.map(std::thread::JoinHandle::join));
        process.wait()?;
        Ok(over)
    }

    /// Lists the plain files that commits changed against their first parents.
    fn changed_by(&self, commits: Vec<u8>) -> io::Result<Vec<GitFile>> {
        let asked = ["diff-tree", "--stdin", "-r", "-z", "--root", "--raw", "--no-abbrev", "--no-renames"];
        let asked = [&asked[..], &["--diff-merges=first-parent", "--format=%H %ct %s"]].concat();
        let printed = self.said(&asked, Some(commits))?;
        let (mut files, mut commit) = (Vec::new(), (None, String::new()));
        let mut fields = printed.split(|byte| *byte == 0);
        while let Some(field) = fields.next() {
            let field = String::from_utf8_lossy(field.strip_prefix(b"\n").unwrap_or(field));
            match field.splitn(5, ' ').collect::<Vec<_>>()[..] {
                [mode, new_mode, _, id, _] if mode.starts_with(':') => {
                    let file = plain(new_mode, id, fields.next().unwrap_or_default(), &commit.1);
                    files.extend(file.map(|file| GitFile { seconds: commit.0, ..file }));
                }
                [id, seconds, ..] => {
                    let subject = field.splitn(3, ' ').nth(2).unwrap_or_default();
                    commit = (seconds.parse().ok(), format!("commit {} {subject}", &id[..id.len().min(9)]));
                }
                _ => {}
            }
        }
        Ok(files)
    }

    /// Lists the plain files of a commit or a tree; none if it can't be read.
    fn committed(&self, revision: &str) -> Vec<GitFile> {
        let printed = run(&self.directory, &["ls-tree", "-r", "-z", "--full-tree", revision], None).unwrap_or_default();
        let file = |line: &[u8]| {
            let (words, path) = halves(line)?;
            let [mode, "blob", id] = words[..] else { return None };
            plain(mode, id, path, if revision == "HEAD" { revision } else { "tree" })
        };
        printed.split(|byte| *byte == 0).filter_map(file).collect()
    }

    /// Returns the time when git stored a loose object.
    fn stored_at(&self, id: &str) -> Option<i64> {
        let (start, rest) = id.split_at_checked(2)?;
        let metadata = self.common_directory.join("objects").join(start).join(rest).metadata().ok()?;
        i64::try_from(metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    }

    /// Runs git and returns its output, whatever its exit status.
    fn said(&self, arguments: &[&str], input: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
        Ok(outcome(git_in(&self.directory, arguments), input)?.stdout)
    }
}

/// Splits a line of a listing into words, and the path after a tab.
fn halves(line: &[u8]) -> Option<(Vec<&str>, &[u8])> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    Some((std::str::from_utf8(&line[..tab]).ok()?.split(' ').collect(), &line[tab + 1..]))
}

/// Returns a file with a path; `None` for links, submodules and removed files.
fn plain(mode: &str, id: &str, path: &[u8], origin: &str) -> Option<GitFile> {
    let (id, path, origin) = (id.to_owned(), Some(path.to_vec()), origin.to_owned());
    let file = GitFile { id, path, is_sure: true, executable: mode == "100755", seconds: None, origin };
    matches!(mode, "100644" | "100755").then_some(file)
}
