//! The event loop. One thread serves all peers, pipes, signals and timers, so the runner works even if no new thread
//! or process can be created.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::answer::Answerer;
use crate::connection::{HostConnection, is_fatal};
use crate::crowd::Population;
use crate::exec::{ExecContext, KillCause, RunnerCommand, StartOutcome};
use crate::spawn::Spawner;
use crate::sys::{
    POLLIN, Passed, PollFd, SIGCHLD, SIGTERM, next_signal, peer, readable, receive_descriptor, wait_ready,
};
use crate::wire::{
    Ended, MAX_CONNECTIONS, OutputStreamKind, RunFailure, RunRequest, RunnerReply, RunnerRequest, VERSION,
};

/// The time limit for a peer to greet, and to read its refusal.
const PEER_TIME_LIMIT: Duration = Duration::from_secs(2);
/// The pause before accepting peers again after an error.
const REST: Duration = Duration::from_millis(100);
/// The time limit for killed processes to disappear when the runner ends.
const STOP_TIME_LIMIT: Duration = Duration::from_secs(2);

pub(crate) enum Gate {
    Listener(UnixListener),
    /// On the host: the socket over which the parent sends a socket for each connection.
    Parent(UnixStream),
}

pub(crate) struct RunnerServer {
    gate: Gate,
    rests_until: Option<Instant>,
    signals: File,
    answerer: Answerer,
    spawner: Spawner,
    population: Population,
    connections: BTreeMap<u64, HostConnection>,
    next_connection: u64,
    commands: Vec<RunnerCommand>,
}

impl RunnerServer {
    pub(crate) fn new(gate: Gate, signals: File, answerer: Answerer) -> Self {
        let contained = matches!(gate, Gate::Listener(_));
        Self {
            gate,
            rests_until: None,
            signals,
            answerer,
            spawner: Spawner::new(),
            population: Population::new(contained),
            connections: BTreeMap::new(),
            next_connection: 0,
            commands: Vec::new(),
        }
    }

    pub(crate) fn serve(mut self) -> io::Result<()> {
        let mut fds = Vec::new();
        loop {
            self.collect_interests(&mut fds);
            match wait_ready(&mut fds, self.time_left()) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) => continue,
                Ok(()) => {}
            }
            let mut ready = fds.iter().map(|fd| fd.ready);
            let (signals, gate) = (ready.next().unwrap_or(0), ready.next().unwrap_or(0));
            for connection in self.connections.values_mut() {
                connection.advance(ready.next().unwrap_or(0));
            }
            for command in &mut self.commands {
                let pipes = [ready.next(), ready.next(), ready.next()].map(|ready| ready.unwrap_or(0));
                command.advance(pipes, command.peer.and_then(|peer| self.connections.get_mut(&peer)));
            }
            if (signals != 0 && self.take_signals()) || (gate != 0 && self.take_peers()) {
                self.end();
                return Ok(());
            }
            self.advance(Instant::now());
        }
    }

    fn collect_interests(&self, fds: &mut Vec<PollFd>) {
        let gate = match &self.gate {
            _ if self.rests_until.is_some() => -1,
            Gate::Listener(listener) => listener.as_raw_fd(),
            Gate::Parent(control) => control.as_raw_fd(),
        };
        fds.clear();
        fds.extend([self.signals.as_raw_fd(), gate].map(|fd| PollFd { fd, events: POLLIN, ready: 0 }));
        fds.extend(self.connections.values().map(HostConnection::interest));
        for command in &self.commands {
            let peer = command.peer.and_then(|peer| self.connections.get(&peer));
            fds.extend(command.interests(peer.is_some_and(HostConnection::takes_output)));
        }
    }

    fn time_left(&self) -> Option<Duration> {
        let commands =
            self.commands.iter().filter(|command| !command.is_over()).filter_map(RunnerCommand::next_deadline);
        let connections = self.connections.values().filter_map(HostConnection::next_deadline);
        let next = commands.chain(connections).chain(self.rests_until).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Returns true if the runner must end.
    fn take_signals(&mut self) -> bool {
        while let Some(signal) = next_signal(&self.signals) {
            match (signal.number, &self.gate) {
                (SIGCHLD, _) => drop(self.population.reap()),
                // Ignored from inside the container, where any command could send it.
                (SIGTERM, Gate::Listener(_)) if signal.sender != Some(0) => {}
                (SIGTERM, _) => return true,
                _ => {}
            }
        }
        false
    }

    /// Ticks the running commands, again and again while that finds ended processes.
    fn tick(&mut self, now: Instant) {
        loop {
            self.tell_of_the_ended();
            for command in self.commands.iter_mut().filter(|command| !command.is_over()) {
                command.tick(now, &mut self.population);
            }
            if !self.population.has_ended() {
                return;
            }
        }
    }

    fn tell_of_the_ended(&mut self) {
        for dead in self.population.take_ended() {
            // An ended command keeps its leader's id until its output is taken, but the system may have reused the id.
            let led = |command: &&mut RunnerCommand| command.leader == dead.pid && command.is_led();
            if let Some(command) = self.commands.iter_mut().find(led) {
                command.leader_ended(dead);
            }
        }
    }

    /// Returns true if the runner must end.
    fn take_peers(&mut self) -> bool {
        let (taken, trusted) = match &self.gate {
            Gate::Listener(listener) => {
                let taken = listener.accept().map(|(stream, _)| Some(stream));
                // A peer with a process id in this namespace is inside the container.
                let outside = |stream: &UnixStream| peer(stream).is_ok_and(|pid| pid == 0);
                let trusted = taken.as_ref().is_ok_and(|stream| stream.as_ref().is_some_and(outside));
                (taken, trusted)
            }
            Gate::Parent(control) => match receive_descriptor(control) {
                Ok(Passed::Socket(fd)) => (Ok(Some(UnixStream::from(fd))), true),
                Ok(Passed::Nothing) => (Ok(None), false),
                Ok(Passed::Closed) => return true,
                Err(error) => (Err(error), false),
            },
        };
        match taken {
            Ok(Some(stream)) if trusted => self.add_peer(stream),
            Ok(_) => {}
            Err(error) if !is_fatal(&error) => {}
            Err(_) => self.rests_until = Some(Instant::now() + REST),
        }
        false
    }

    fn add_peer(&mut self, stream: UnixStream) {
        let full = self.connections.len() >= MAX_CONNECTIONS;
        let Ok(mut connection) = HostConnection::new(stream, Instant::now() + PEER_TIME_LIMIT) else { return };
        if full {
            let message = format!("all {MAX_CONNECTIONS} connections are in use");
            connection.refuse(RunFailure::Busy, &message);
            connection.flush();
            return;
        }
        self.connections.insert(self.next_connection, connection);
        self.next_connection += 1;
    }

    fn advance(&mut self, now: Instant) {
        self.rests_until = self.rests_until.filter(|until| *until > now);
        self.tick(now);
        self.finish_commands(now);
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for id in ids {
            self.serve_peer(id, now);
        }
        for connection in self.connections.values_mut() {
            connection.flush();
        }
        self.connections.retain(|_, connection| !connection.is_over(now));
        for command in &mut self.commands {
            if command.peer.is_some_and(|peer| !self.connections.contains_key(&peer)) {
                command.peer = None;
                command.stop(KillCause::PeerGone, now);
            }
        }
    }

    /// Reports the end of commands once their processes are gone and the peer has taken the output.
    fn finish_commands(&mut self, now: Instant) {
        let connections = &mut self.connections;
        self.commands.retain_mut(|command| {
            if !command.is_over() {
                return true;
            }
            let Some(peer) = command.peer.and_then(|peer| connections.get_mut(&peer)) else { return false };
            if !command.drain(peer) {
                return true;
            }
            RunnerReply::Ended(command.ended(now)).encode(peer.out());
            peer.runs = false;
            false
        });
    }

    fn serve_peer(&mut self, id: u64, now: Instant) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if !connection.takes_output() {
                return;
            }
            let Some(frame) = connection.next_frame() else { return };
            let request = RunnerRequest::decode(&frame);
            match (connection.greeted, connection.runs, request) {
                (_, _, Err(malformed)) => connection.refuse(RunFailure::Protocol, malformed.0),
                (false, _, Ok(RunnerRequest::Hello { version, token })) => self.greet(id, version, token),
                (false, ..) => connection.refuse(RunFailure::Protocol, "the first request must be a greeting"),
                (true, true, Ok(request)) => self.steer(id, &request, now),
                (true, false, Ok(RunnerRequest::Run(run))) => self.begin(id, &run, now),
                (true, false, Ok(request)) => self.answerer.answer(&request, connection),
            }
        }
    }

    /// Applies a request to the peer's running command.
    fn steer(&mut self, id: u64, request: &RunnerRequest<'_>, now: Instant) {
        // Another peer's request may have just ended it.
        self.tell_of_the_ended();
        let command = self.commands.iter_mut().find(|command| command.peer == Some(id));
        let (Some(command), Some(connection)) = (command, self.connections.get_mut(&id)) else { return };
        match request {
            RunnerRequest::Cancel => command.stop(KillCause::Cancel, now),
            RunnerRequest::Input(bytes) if command.give(bytes, connection) => {}
            RunnerRequest::Input(_) => connection.refuse(RunFailure::Protocol, "unread input exceeds the limit"),
            RunnerRequest::EndInput => command.end_input(connection),
            RunnerRequest::Resize(window) => command.resize(*window),
            RunnerRequest::Signal(number) => command.signal(*number),
            _ => connection.refuse(RunFailure::Protocol, "the connection's command is still running"),
        }
    }

    fn greet(&mut self, id: u64, version: u16, token: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if version != VERSION {
            let message = format!("this runner speaks version {VERSION}, not {version}");
            connection.refuse(RunFailure::Version, &message);
        } else if !self.answerer.knows(token) {
            connection.refuse(RunFailure::Token, "it does not match");
        } else {
            connection.greeted = true;
            let pid = std::process::id();
            RunnerReply::Welcome { version: VERSION, pid, features: self.answerer.features }.encode(connection.out());
        }
    }

    fn begin(&mut self, id: u64, run: &RunRequest<'_>, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let contained = matches!(self.gate, Gate::Listener(_));
        let place = ExecContext { root: &self.answerer.root, contained, null: &self.answerer.null };
        let begun = self.answerer.oom.biased(|| RunnerCommand::begin(run, &place, &mut self.spawner, now));
        match begun {
            Ok(StartOutcome::Running(mut command)) => {
                command.peer = Some(id);
                connection.runs = true;
                if run.is_fed {
                    RunnerReply::Started { pid: command.leader.cast_unsigned() }.encode(connection.out());
                }
                self.population.add(command.leader);
                self.commands.push(command);
            }
            Ok(StartOutcome::NoProgram { exit_code, message }) => {
                if !run.discard_output {
                    let stream = if run.merge_output { OutputStreamKind::Stdout } else { OutputStreamKind::Stderr };
                    RunnerReply::Output { stream, bytes: message.as_bytes() }.encode(connection.out());
                }
                RunnerReply::Ended(Ended { exit_code: Some(exit_code), ..Ended::default() }).encode(connection.out());
            }
            Err(refused) => connection.fail(&refused),
        }
    }

    fn end(&mut self) {
        // In a container, the kernel ends all other processes with this one.
        if matches!(self.gate, Gate::Listener(_)) {
            return;
        }
        self.population.kill_all();
        let until = Instant::now() + STOP_TIME_LIMIT;
        while !self.population.is_empty() && Instant::now() < until {
            readable(self.signals.as_fd(), Duration::from_millis(5));
        }
    }
}
