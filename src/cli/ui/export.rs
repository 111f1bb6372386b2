//! The page with a session as one file: the answers of a server, and contents of files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use foldspace::backends::is_secret_name;
use foldspace::event::{Digest, Event, TerminalRecorded};
use foldspace::http::{HttpClient, HttpFace, HttpOptions};
use foldspace::hub::HubOptions;
use foldspace::tools::SecretMask;
use foldspace::view::{self, Position};
use foldspace::{Hub, Session};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::single_file::{file_with, packed};
use crate::cli::mask::MaskArgs;
use crate::cli::{Failure, Globals, Out, files, open, output, text};

/// The largest content, or whole text of a call, that is included, in bytes.
const CONTENT_MAX: u64 = 64 << 10;
/// The budget for all optional parts, in compressed bytes. It keeps the file of 1,000 calls below 5 MB.
const BUDGET: usize = 3500 << 10;
/// The part of the budget that is reserved for contents and the texts of calls, in compressed bytes.
const CONTENTS: usize = 1500 << 10;
/// The largest value of a slice, in bytes.
const SLICE_MAX: usize = 16 << 10;
/// Slices that the page derives from the files and the calls.
const KNOWN_SLICES: [&str; 2] = ["VirtualFileSystem", "ToolCalls"];
const LISTED: usize = 10;
/// The largest row of a call, in bytes.
const ROW_MAX: usize = 2 << 10;
/// The number of digits of a digest, which only joins an entry and its content here.
const DIGEST: usize = 16;

/// The data of an exported page.
#[derive(Default, Serialize)]
struct ExportedPage {
    session: String,
    from: u64,
    to: u64,
    answers: Map<String, Value>,
    /// Changes outside of calls: `{from, to, changes}`.
    between: Vec<Value>,
    blobs: BTreeMap<String, Value>,
    left_out: Vec<Value>,
    /// The rest of the budget, in bytes.
    #[serde(skip)]
    room: usize,
    #[serde(skip)]
    mask: Option<SecretMask>,
}

pub(super) fn export(
    globals: &Globals,
    wanted: &str,
    (from, to): (Option<&Position>, Option<&Position>),
    (file, force): (&Path, bool),
    masking: &MaskArgs,
    out: &mut Out,
) -> Result<(), Failure> {
    let shown = text::one_line(&file.display().to_string(), 300);
    files::check_absent(file, force)?;
    let directory = open::existing(globals)?;
    let opened = open::reading(globals)?;
    let session = opened.find(wanted)?.session;
    let from = from.map_or(Ok(1), |from| from.first_read(&session))?;
    let to = to.map_or_else(|| session.head(), |to| to.resolve(&session))?;
    let hub = Hub::new(opened.sessions.clone(), HubOptions::new(&directory));
    let client = HttpClient::within(HttpFace::new(hub).router(HttpOptions::default()));
    let (page, calls) = crate::cli::block_on(collected(&client, &session, masking.mask(), (from, to)))??;
    let failed = |error: serde_json::Error| Failure::failed(error.to_string());
    let (mut data, mut mask) = (serde_json::to_value(&page).map_err(failed)?, masking.mask());
    mask.json(&mut data);
    masking.tell(&mask);
    let data = serde_json::to_vec(&data).map_err(failed)?;
    let written = file_with(&packed(&data)?);
    if files::is_standard(file) {
        return out.line(written);
    }
    files::write(file, |target| {
        let failed = |error| Failure::io("write", file.display(), &error);
        std::io::Write::write_all(target, written.as_bytes()).map_err(failed)
    })?;
    tell(&page.left_out);
    let (bytes, left_out) = (written.len(), page.left_out.len());
    let document =
        json!({ "session": page.session, "file": file, "calls": calls, "bytes": bytes, "left_out": page.left_out });
    let told = format!("wrote {}, {}, to {shown}", text::count(calls as u64, "call"), text::size(bytes as u64));
    let told = if left_out == 0 { told } else { format!("{told}, without {}", text::count(left_out as u64, "part")) };
    out.show(&document, |out| out.line(told))
}

fn tell(left_out: &[Value]) {
    for what in left_out.iter().take(LISTED) {
        let path = text::one_line(what["path"].as_str().unwrap_or_default(), 200);
        let size = what["size"].as_u64().map(|bytes| format!(", {}", text::size(bytes))).unwrap_or_default();
        output::note(&format!("left out{size}: {path}"));
    }
    if left_out.len() > LISTED {
        output::note(&format!("also left out: {}", text::count((left_out.len() - LISTED) as u64, "part")));
    }
}

async fn collected(
    client: &HttpClient,
    session: &Session,
    mask: SecretMask,
    (from, to): (u64, u64),
) -> Result<(ExportedPage, usize), Failure> {
    let id = session.id().to_string();
    let place = format!("/v1/sessions/{id}");
    let mut page = ExportedPage { session: id, from, to, room: BUDGET, mask: Some(mask), ..ExportedPage::default() };
    for what in ["", "/timeline", "/family"] {
        page.answer(&place, what, client.get(&format!("{place}{what}")).await?);
    }
    let calls = calls(client, &place, from, to).await?;
    let base = calls.first().map_or(from, |call| number(call, "call")).saturating_sub(1);
    let entries: Value = client.get(&format!("{place}/files?at=@{base}")).await?;
    let mut contents: BTreeMap<String, (u64, String)> = BTreeMap::new();
    entries.as_array().into_iter().flatten().for_each(|entry| note_content(entry, &entry["path"], &mut contents));
    page.room -= CONTENTS;
    let (mut seen, mut touched) = (base, BTreeSet::new());
    for call in &calls {
        let (call, end) = (number(call, "call"), call["finished"].as_u64().unwrap_or(to));
        if call > seen + 1 {
            let between: Value = client.get(&format!("{place}/changes?from=@{seen}&to=@{}", call - 1)).await?;
            changed(&between, &mut contents, &mut touched);
            if between["changes"].as_array().is_some_and(|changes| !changes.is_empty()) {
                let between = page.changes(between)?;
                page.between.push(between);
            }
        }
        let changes: Value = client.get(&format!("{place}/changes?from=@{}&to=@{end}", call - 1)).await?;
        changed(&changes, &mut contents, &mut touched);
        let changes = page.changes(changes)?;
        page.answer(&place, &format!("/changes/{call}"), changes);
        seen = seen.max(end);
    }
    let entries = page.files(entries, &touched)?;
    page.answer(&place, "/files", entries);
    page.room += CONTENTS;
    for call in &calls {
        let rest = format!("/calls/{}", number(call, "call"));
        let whole: Value = client.get(&format!("{place}{rest}")).await?;
        page.take_terminal(client, &place, &whole).await?;
        page.answer_if_it_fits(&place, &rest, whole)?;
    }
    page.take_slices(&place, session, &calls)?;
    let count = calls.len();
    let head = session.head()?;
    let calls: Vec<Value> = calls.into_iter().map(short_row).collect();
    page.answer(&place, "/calls", json!({ "head": head, "next": null, "calls": calls }));
    page.take_contents(session, contents)?;
    Ok((page, count))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_default()
}

async fn calls(client: &HttpClient, place: &str, from: u64, to: u64) -> Result<Vec<Value>, Failure> {
    let (mut found, mut next) = (Vec::new(), Some(from));
    while let Some(from) = next.filter(|from| *from <= to) {
        let mut page: Value = client.get(&format!("{place}/calls?limit=1000&from={from}")).await?;
        next = page["next"].as_u64();
        if let Value::Array(calls) = page["calls"].take() {
            found.extend(calls.into_iter().filter(|call| number(call, "call") <= to));
        }
    }
    Ok(found)
}

/// Returns the row of a call, without long parameters, which the whole call may have.
fn short_row(mut row: Value) -> Value {
    if row.to_string().len() > ROW_MAX {
        row["params"] = json!({});
        if let Some(paths) = row["paths"].as_array_mut() {
            paths.truncate(LISTED);
        }
    }
    row
}

fn changed(changes: &Value, contents: &mut BTreeMap<String, (u64, String)>, touched: &mut BTreeSet<String>) {
    for change in changes["changes"].as_array().into_iter().flatten() {
        touched.extend(change["path"].as_str().map(str::to_owned));
        note_content(&change["before"], &change["path"], contents);
        note_content(&change["after"], &change["path"], contents);
    }
}

fn note_content(entry: &Value, path: &Value, contents: &mut BTreeMap<String, (u64, String)>) {
    if let (Some(digest), Some(path)) = (entry["content"].as_str(), path.as_str()) {
        contents.entry(digest.to_owned()).or_insert_with(|| (number(entry, "size"), path.to_owned()));
    }
}

/// Shortens the digests of an entry or a change: whole digests would use most of the budget.
fn shorten(entry: &mut Value) {
    for name in ["before", "after"] {
        if entry.get(name).is_some_and(Value::is_object) {
            shorten(&mut entry[name]);
        }
    }
    if let Some(Value::String(digest)) = entry.get_mut("content") {
        digest.truncate(DIGEST);
    }
}

/// Returns true if a screen shows a secret. A long secret continues in the next row, and frames have it in parts.
fn shows_secret(frames: &Value, mask: &SecretMask) -> bool {
    frames["frames"].as_array().into_iter().flatten().any(|frame| {
        let rows = frame["rows"].as_object().into_iter().flat_map(Map::values).map(|row| {
            row.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect::<String>()
        });
        let rows: Vec<String> = rows.collect();
        mask.finds(&rows.concat()) || mask.finds(&rows.join("\n"))
    })
}

impl ExportedPage {
    fn answer(&mut self, place: &str, rest: &str, value: Value) {
        self.answers.insert(format!("GET {place}{rest}"), value);
    }

    fn answer_if_it_fits(&mut self, place: &str, rest: &str, value: Value) -> Result<(), Failure> {
        let size = value.to_string().len() as u64;
        match self.has_room(size, value.to_string().as_bytes())? {
            true => self.answer(place, rest, value),
            false => self.left_out.push(json!({ "path": rest.trim_start_matches('/'), "digest": null, "size": size })),
        }
        Ok(())
    }

    /// Includes the frames of a call's terminal, unless they exceed a page of the API or the budget, or show a secret.
    async fn take_terminal(&mut self, client: &HttpClient, place: &str, whole: &Value) -> Result<(), Failure> {
        let mut events = whole["recorded"].as_object().into_iter().flat_map(Map::values);
        let Some(recorded) = events.find(|event| event["kind"] == TerminalRecorded::KIND) else { return Ok(()) };
        let rest = format!("/calls/{}/frames", whole["call"]);
        let frames: Value = client.get(&format!("{place}{rest}")).await?;
        let has_secrets = self.mask.as_ref().is_some_and(|mask| shows_secret(&frames, mask));
        match frames["next"].is_null() && !has_secrets && self.fits(frames.to_string().as_bytes())? {
            true => self.answer(place, &rest, frames),
            false => {
                let (path, size) =
                    (format!("the terminal of call {}", whole["call"]), number(&recorded["event"], "bytes"));
                self.left_out.push(json!({ "path": path, "digest": null, "size": size }));
            }
        }
        Ok(())
    }

    /// Returns a list of changes, cut to the budget.
    fn changes(&mut self, mut list: Value) -> Result<Value, Failure> {
        let Value::Array(changes) = list["changes"].take() else { return Ok(list) };
        let count = changes.len();
        let changes = self.as_many_as_fit(changes)?;
        // The list may have been cut before.
        if changes.len() < count || list["more"] == true {
            list["more"] = true.into();
            self.leave_out(format!("changes after event {}, except for {}", list["from"], changes.len()));
        }
        list["changes"] = changes.into();
        Ok(list)
    }

    /// Returns the files at the start, cut to the budget: files that the calls change, then the others.
    fn files(&mut self, entries: Value, touched: &BTreeSet<String>) -> Result<Value, Failure> {
        let Value::Array(entries) = entries else { return Ok(entries) };
        let count = entries.len();
        let (first, rest): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry["path"].as_str().is_some_and(|path| touched.contains(path)));
        let first = self.as_many_as_fit(first)?;
        let kept: Vec<Value> = first.into_iter().chain(self.as_many_as_fit(rest)?).collect();
        if kept.len() < count {
            self.leave_out(format!("{} from the start", text::count((count - kept.len()) as u64, "file")));
        }
        Ok(kept.into())
    }

    fn as_many_as_fit(&mut self, mut entries: Vec<Value>) -> Result<Vec<Value>, Failure> {
        entries.iter_mut().for_each(shorten);
        while !self.fits(&serde_json::to_vec(&entries).unwrap_or_default())? {
            entries.truncate(entries.len() / 2);
            if entries.is_empty() {
                break;
            }
        }
        Ok(entries)
    }

    fn leave_out(&mut self, what: String) {
        self.left_out.push(json!({ "path": what, "digest": null, "size": null }));
    }

    /// Charges small data to the budget, and returns true if it fits.
    fn has_room(&mut self, size: u64, data: &[u8]) -> Result<bool, Failure> {
        Ok(size <= CONTENT_MAX && self.fits(data)?)
    }

    fn fits(&mut self, data: &[u8]) -> Result<bool, Failure> {
        let needed = packed(data)?.len();
        let fits = needed <= self.room;
        if fits {
            self.room -= needed;
        }
        Ok(fits)
    }

    /// Includes the values of slices after the calls that changed them.
    fn take_slices(&mut self, place: &str, session: &Session, calls: &[Value]) -> Result<(), Failure> {
        let mut before = BTreeMap::new();
        for call in calls {
            let Some(end) = call["finished"].as_u64() else { continue };
            let state = session.state_at(end)?;
            for (slice, digest) in state.digests()? {
                if KNOWN_SLICES.contains(&slice) || before.insert(slice, digest) == Some(digest) {
                    continue;
                }
                let value = view::slice(&state, slice)?;
                let json = value.to_string();
                if json.len() <= SLICE_MAX && self.has_room(json.len() as u64, json.as_bytes())? {
                    self.answer(place, &format!("/state/{slice}@{end}"), value);
                }
            }
        }
        Ok(())
    }

    /// Includes contents of files, smallest first.
    fn take_contents(&mut self, session: &Session, contents: BTreeMap<String, (u64, String)>) -> Result<(), Failure> {
        let in_order: BTreeSet<_> = contents.into_iter().map(|(digest, (size, path))| (size, path, digest)).collect();
        for (size, path, digest) in in_order {
            // If secrets are masked, files of secrets are left out.
            let is_secret = is_secret_name(path.rsplit('/').next().unwrap_or_default().as_bytes());
            let is_withheld = is_secret && self.mask.as_ref().is_some_and(SecretMask::knows);
            let bytes = match digest.parse::<Digest>() {
                _ if is_withheld => None,
                Ok(known) if size <= CONTENT_MAX => session.content(&known).ok(),
                _ => None,
            };
            let blob = bytes.map(|bytes| match std::str::from_utf8(&bytes) {
                Ok(text) => json!({ "text": text }),
                Err(_) => json!({ "base64": BASE64_STANDARD.encode(&bytes) }),
            });
            match blob {
                Some(blob) if self.has_room(size, blob.to_string().as_bytes())? => {
                    drop(self.blobs.insert(digest[..DIGEST].to_owned(), blob))
                }
                _ => self.left_out.push(json!({ "path": path, "digest": digest, "size": size })),
            }
        }
        Ok(())
    }
}
