use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use foldspace::event::EventRef;
use foldspace::tools::PathGlob;
use foldspace::view::{self, Call, CallViews, Conversation, ObservedCalls, RunMessage, RunSpan, backward_spans};
use foldspace::{Filter, Seq, Session, Timestamp};

use super::history::HistoryArgs;
use super::{
    AtArg, DIM, Exit, Failure, FoundSession, Globals, Out, calls, did_you_mean, events, open, position, runs, text,
    thread, tree,
};

/// Shows the events of a session, its calls, or the changes of a file
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Shows only what happened until", "Shows only what happened before")))]
#[command(after_help = "\
Examples:
  foldspace log NAME --calls --limit 20        the last twenty calls
  foldspace log NAME src/main.rs --patch       every change of a file
  foldspace log NAME / --at 40                 every change until event 40
  foldspace log NAME --kind WriteFile --path 'src/**'
  foldspace log --runs                         the runs of agents
  foldspace log --run last --calls             the calls of the latest run
  foldspace log NAME --messages                prompts, answers and reasoning
  foldspace log NAME --claims                  success claimed after a failure
  foldspace log NAME --follow --json           new events as they come")]
pub(super) struct LogArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    #[command(flatten)]
    history: HistoryArgs,
    /// Shows calls, one line each, instead of events
    #[arg(long)]
    calls: bool,
    /// Shows only events of this kind; may be given several times
    #[arg(long, value_name = "KIND", conflicts_with = "calls")]
    kind: Vec<String>,
    /// Lists the runs of agents, instead of events
    #[arg(long, conflicts_with_all = ["calls", "kind", "run", "agent", "glob", "follow"])]
    runs: bool,
    /// Shows the messages of agents' runs, instead of events
    #[arg(long, conflicts_with_all = ["calls", "kind", "runs", "glob"])]
    messages: bool,
    /// Shows messages of agents that speak of success after their last command failed
    #[arg(long, conflicts_with_all = ["calls", "kind", "runs", "glob", "messages"])]
    claims: bool,
    /// Shows only events of one run of an agent, by the run's id or the beginning of it; `last` is the latest run
    #[arg(long, value_name = "RUN", conflicts_with = "follow")]
    run: Option<String>,
    /// Shows only events of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Shows only changes of files with a path that matches, or calls that made such changes
    #[arg(long = "path", value_name = "GLOB")]
    glob: Option<String>,
    /// Shows only the last N
    #[arg(short = 'n', long, value_name = "N")]
    limit: Option<usize>,
    /// Shows the latest first
    #[arg(long)]
    reverse: bool,
    /// Continues with new events until it is stopped
    #[arg(short, long, conflicts_with_all = ["reverse", "at", "before"])]
    follow: bool,
    #[command(flatten)]
    at: AtArg,
}

/// The number of events that are read first, from the end, if only the last lines are wanted.
const SPAN: u64 = 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(200);

impl LogArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let (glob, path) = (self.glob.as_deref().map(tree::glob).transpose()?, self.history.path()?);
        if self.follow {
            // A pager would hide new events.
            out.go_live()?;
        }
        let found = open::session(globals, &self.session)?;
        let until = self.at.resolve(&found.session)?;
        if let Some(path) = path {
            let shown = self.history.show(&found.session, (&path, until), (self.limit, self.reverse), out);
            return shown.map(|()| Exit::Ok);
        }
        if self.runs {
            return runs::show(&found.session, until, (self.limit, self.reverse), out).map(|()| Exit::Ok);
        }
        let run = self.run.as_deref().map(|run| ObservedCalls::of(&found.session)?.run(&found.session, run));
        let run = run.transpose().map_err(Failure::from)?;
        let view = LogView::new(&found, until, out);
        if self.messages || self.claims {
            return self.show_messages(&view, until, run.as_ref(), out);
        }
        let span = self.limit.filter(|_| !self.follow).map_or(until, |limit| SPAN.max(limit as u64 * 8));
        for (from, _) in backward_spans((1, until), span, 8) {
            let mut lines = LogLines::new(self, (glob.as_ref(), run.as_ref()), &view, (from, out.is_json()))?;
            let mut held = HeldLines { limit: self.limit, reverse: self.reverse, lines: VecDeque::new() };
            let mut outcome = Ok(());
            found.session.visit_between(from, until, &mut |event| {
                outcome = lines.take(event, out, &mut held);
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            lines.unfold(out, &mut held)?;
            if self.follow {
                held.end(out)?;
                lines.folded = None;
                return follow(&found.session, until, |event| lines.take(event, out, &mut HeldLines::default()));
            }
            lines.end(out, &mut held)?;
            if from == 1 || self.limit.is_some_and(|limit| held.lines.len() >= limit) {
                held.end(out)?;
                return if lines.is_any { Ok(Exit::Ok) } else { self.check_kinds(&found.session) };
            }
        }
        Ok(Exit::Ok)
    }

    fn show_messages(
        &self,
        view: &LogView<'_>,
        until: Seq,
        run: Option<&RunSpan>,
        out: &mut Out,
    ) -> Result<Exit, Failure> {
        let (mut conversation, session, mut is_any) = (Conversation::default(), view.session, false);
        let mut take = |event: &EventRef<'_>, held: &mut HeldLines, out: &mut Out| {
            let messages = conversation.take(session, event);
            let mut wanted = messages.iter().filter(|message| {
                (self.messages || message.claim.is_some())
                    && self.agent.as_ref().is_none_or(|agent| **agent == *message.agent)
                    && run.is_none_or(|run| run.run == message.run)
            });
            wanted.try_for_each(|message| {
                is_any = true;
                held.add(view.message(message, self.claims, out)?, out)
            })
        };
        let mut held = HeldLines { limit: self.limit, reverse: self.reverse, lines: VecDeque::new() };
        let mut outcome = Ok(());
        session.visit_between(1, until, &mut |event| {
            outcome = take(event, &mut held, out);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        held.end(out)?;
        if self.follow {
            return follow(session, until, |event| take(event, &mut HeldLines::default(), out));
        }
        match (is_any || out.is_json(), self.claims) {
            (true, _) => {}
            (false, true) => out.line("no message claims success after a failed command")?,
            (false, false) => out.line("no agent has reported a message")?,
        }
        Ok(Exit::Ok)
    }

    /// Refuses an unknown kind of event. Called if no event was found: a newer program may have recorded other kinds.
    fn check_kinds(&self, session: &Session) -> Result<Exit, Failure> {
        let mut known: Vec<_> = session.state_at(0)?.registry().event_kinds().collect();
        known.sort_unstable();
        let is_unknown = |kind: &&String| !known.iter().any(|known| known.eq_ignore_ascii_case(kind));
        let Some(unknown) = self.kind.iter().find(is_unknown) else { return Ok(Exit::Ok) };
        let meant = did_you_mean(unknown, known.iter().copied());
        let what = format!("unknown kind of event {:?}", text::one_line(unknown, 100));
        Err(Failure::missing(what).with_hint(format!("{meant}there are {}", known.join(", "))))
    }

    fn wants(&self, event: &EventRef<'_>, glob: Option<&PathGlob>) -> bool {
        let path = || view::path_of(event);
        (self.kind.is_empty() || self.kind.iter().any(|kind| kind.eq_ignore_ascii_case(event.kind)))
            && self.agent.as_ref().is_none_or(|agent| *agent == event.agent)
            && glob.is_none_or(|glob| path().is_some_and(|path| glob.fits(&path)))
    }

    fn wants_call(&self, call: &Call, glob: Option<&PathGlob>) -> bool {
        self.agent.as_ref().is_none_or(|agent| **agent == *call.agent)
            && glob.is_none_or(|glob| call.paths.iter().any(|path| glob.fits(path)))
    }
}

fn follow(
    session: &Session,
    after: Seq,
    mut take: impl FnMut(&EventRef<'_>) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let mut subscription = session.subscribe(after + 1, Filter::all());
    loop {
        if let Some(event) = subscription.next_within(POLL_INTERVAL)? {
            take(&event.view())?;
        }
    }
}

struct LogLines<'a> {
    log: &'a LogArgs,
    glob: Option<&'a PathGlob>,
    run: Option<&'a RunSpan>,
    view: &'a LogView<'a>,
    calls: CallViews,
    folded: Option<Folded>,
    /// True if reading started in the middle, perhaps among entries to fold.
    is_within: bool,
    /// True once an event has matched.
    is_any: bool,
}

#[derive(Default)]
struct Folded {
    is_open: bool,
    positions: Option<(Seq, Seq)>,
    lines: Vec<String>,
    count: u64,
}

const FOLDED_FROM: usize = 9;

impl<'a> LogLines<'a> {
    fn new(
        log: &'a LogArgs,
        (glob, run): (Option<&'a PathGlob>, Option<&'a RunSpan>),
        view: &'a LogView<'a>,
        (from, is_json): (Seq, bool),
    ) -> Result<Self, Failure> {
        let folds = !is_json && log.kind.is_empty() && glob.is_none();
        let folded = folds.then(Folded::default);
        let calls = CallViews::from(view.session, if log.calls { from } else { 1 })?;
        Ok(Self { log, glob, run, view, calls, folded, is_within: from > 1, is_any: false })
    }

    fn take(&mut self, event: &EventRef<'_>, out: &mut Out, held: &mut HeldLines) -> Result<(), Failure> {
        if !self.log.calls {
            if !self.log.wants(event, self.glob) || self.run.is_some_and(|run| !run.has(event)) {
                return Ok(());
            }
            self.is_within &= self.folded.is_some() && events::is_entry(event);
            if self.is_within {
                return Ok(());
            }
            self.is_any = true;
            let line = self.view.event(event, out)?;
            return match self.fold(event, line) {
                None => Ok(()),
                Some(line) => {
                    self.unfold(out, held)?;
                    held.add(line, out)
                }
            };
        }
        self.calls.take(event);
        while let Some(call) = self.calls.next_ended() {
            self.show(&call, out, held)?;
        }
        Ok(())
    }

    fn fold(&mut self, event: &EventRef<'_>, line: String) -> Option<String> {
        let Some(folded) = &mut self.folded else { return Some(line) };
        if !events::is_entry(event) || !folded.is_open {
            folded.is_open = events::has_entries(event.kind);
            return Some(line);
        }
        folded.positions = Some((folded.positions.map_or(event.seq, |(first, _)| first), event.seq));
        folded.count += 1;
        if folded.lines.len() < FOLDED_FROM {
            folded.lines.push(line);
        }
        None
    }

    fn unfold(&mut self, out: &mut Out, held: &mut HeldLines) -> Result<(), Failure> {
        let Some(folded) = &mut self.folded else { return Ok(()) };
        let (lines, count) = (std::mem::take(&mut folded.lines), std::mem::take(&mut folded.count));
        match folded.positions.take() {
            Some((first, last)) if lines.len() >= FOLDED_FROM => {
                let what = format!("{} at {first} to {last}; --path '**' shows each", text::count(count, "entry"));
                held.add(format!("{:>1$}  {2}", "...", self.view.width, out.paint(DIM, what)), out)
            }
            _ => lines.into_iter().try_for_each(|line| held.add(line, out)),
        }
    }

    fn end(&mut self, out: &mut Out, held: &mut HeldLines) -> Result<(), Failure> {
        while let Some(call) = self.calls.next_begun() {
            self.show(&call, out, held)?;
        }
        Ok(())
    }

    fn show(&self, call: &Call, out: &mut Out, held: &mut HeldLines) -> Result<(), Failure> {
        let is_of_run = self.run.is_none_or(|run| run.calls.contains(&call.call));
        match is_of_run && self.log.wants_call(call, self.glob) {
            true => held.add(self.view.call(call, out)?, out),
            false => Ok(()),
        }
    }
}

struct LogView<'a> {
    session: &'a Session,
    width: usize,
    days: bool,
    /// The columns of a narrow terminal, which has no room for agents and durations.
    narrow: Option<usize>,
}

/// The number of columns below which a terminal is narrow.
const NARROW: usize = 80;

impl<'a> LogView<'a> {
    fn new(found: &'a FoundSession, until: Seq, out: &Out) -> Self {
        let session = &found.session;
        let days = text::day(found.entry.origin.time) != text::day(session.now());
        let narrow = out.columns().filter(|columns| *columns < NARROW);
        Self { session, width: until.to_string().len().max(4), days, narrow }
    }

    fn time(&self, time: Timestamp) -> String {
        match (self.days, self.narrow) {
            (true, None) => text::moment(time),
            (false, None) => text::time_of_day(time),
            // Without the year and the seconds, or without the milliseconds.
            (true, Some(_)) => text::moment(time).chars().skip(5).take(11).collect(),
            (false, Some(_)) => text::time_of_day(time).chars().take(8).collect(),
        }
    }

    fn message(&self, message: &RunMessage, is_claim: bool, out: &Out) -> Result<String, Failure> {
        if out.is_json() {
            return out.json(message);
        }
        let (seq, time) = (format!("{:>1$}", message.seq, self.width), out.paint(DIM, self.time(message.time)));
        let what = thread::line(message, is_claim, out);
        Ok(format!("{seq}  {time}  {:<8}  {what}", text::one_line(&message.agent, 40)).trim_end().to_owned())
    }

    fn event(&self, event: &EventRef<'_>, out: &Out) -> Result<String, Failure> {
        if out.is_json() {
            return out.json(&view::event(self.session, event));
        }
        let (seq, time) = (format!("{:>1$}", event.seq, self.width), self.time(event.time));
        let kind = out.paint(events::tone_of(event.kind), format!("{:<14}", text::one_line(event.kind, 100)));
        let call = event.call.map_or("-".to_owned(), |call| format!("#{call}"));
        let call = format!("{call:<0$}", self.width + 1);
        let agent = if event.agent.is_empty() { "-".to_owned() } else { text::one_line(event.agent, 40) };
        let gist = events::gist(self.session, event);
        if let Some(columns) = self.narrow {
            let before = seq.len() + time.len() + text::one_line(event.kind, 100).len().max(14) + call.len() + 4 * GAP;
            let [gist] = fitted([gist], columns.saturating_sub(before));
            return Ok(format!("{seq}  {}  {kind}  {call}  {gist}", out.paint(DIM, time)).trim_end().to_owned());
        }
        let time = out.paint(DIM, time);
        Ok(format!("{seq}  {time}  {kind}  {call}  {agent:<8}  {gist}").trim_end().to_owned())
    }

    fn call(&self, call: &Call, out: &Out) -> Result<String, Failure> {
        if out.is_json() {
            return out.json(call);
        }
        let (seq, time) = (format!("{:>1$}", call.call, self.width), out.paint(DIM, self.time(call.started_at)));
        let status = out.paint(calls::tone(call), format!("{:<11}", calls::ending(call)));
        let duration = format!("{:>8}", calls::duration(call));
        let agent = if call.agent.is_empty() { "-".to_owned() } else { text::one_line(&call.agent, 40) };
        let (tool, subject) = (text::one_line(&call.tool, 100), events::subject(self.session, &call.params));
        let changes = calls::changes(call, &subject);
        let message = text::one_line(&call.message, 100);
        let middle = match self.narrow {
            None => format!("{duration}  {agent:<8}  {tool:<10}"),
            Some(_) => format!("{tool:<10}"),
        };
        let before = seq.len() + self.time(call.started_at).len() + 11 + middle.chars().count() + 4 * GAP;
        let room = out.columns().map_or(usize::MAX, |columns| columns.saturating_sub(before));
        let [subject, changes, message] = fitted([subject, changes, message], room);
        let mut line = format!("{seq}  {time}  {status}  {middle}  {subject}");
        for (part, style) in [(changes, DIM), (message, calls::tone(call).into())] {
            if !part.is_empty() {
                line.push_str(&format!("  {}", out.paint(style, part)));
            }
        }
        Ok(line.trim_end().to_owned())
    }
}

/// The number of columns between two parts of a line.
const GAP: usize = 2;

/// Cuts the last parts of a line so that they and the gaps between them fit.
fn fitted<const N: usize>(parts: [String; N], mut room: usize) -> [String; N] {
    parts.map(|part| {
        let length = part.chars().count();
        let fit = match length <= room {
            true => part,
            false if room < 2 => String::new(),
            false => part.chars().take(room - 1).chain(['…']).collect(),
        };
        room = room.saturating_sub(if length == 0 { 0 } else { length + GAP });
        fit
    })
}

#[derive(Default)]
struct HeldLines {
    limit: Option<usize>,
    reverse: bool,
    lines: VecDeque<String>,
}

impl HeldLines {
    fn add(&mut self, line: String, out: &mut Out) -> Result<(), Failure> {
        if self.limit.is_none() && !self.reverse {
            return out.line(line);
        }
        self.lines.push_back(line);
        if self.limit.is_some_and(|limit| self.lines.len() > limit) {
            self.lines.pop_front();
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        if self.reverse {
            self.lines.make_contiguous().reverse();
        }
        self.lines.drain(..).try_for_each(|line| out.line(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_parts_fit_room() {
        let fit = |room| fitted(["src/main.rs", "+1 ~2", "it failed"].map(str::to_owned), room);
        assert_eq!(fit(usize::MAX), ["src/main.rs", "+1 ~2", "it failed"]);
        assert_eq!(fit(24), ["src/main.rs", "+1 ~2", "it …"]);
        assert_eq!(fit(16), ["src/main.rs", "+1…", ""]);
        assert_eq!(fit(5), ["src/…", "", ""]);
    }
}
