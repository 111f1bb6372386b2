"""Drives an agent at a terminal. It asks before each call, and a person writes a file before each answer."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

COMMAND = {"gemini": ["gemini", "-m", "gemini-2.5-flash"], "copilot": ["copilot"], "opencode": ["opencode"]}
# Seconds: until the agent takes input; until it asks; until the person answers.
BEGINS, ASKS, WORKS = 20, 10, 3


class Terminal:
    def __init__(self, words, directory, environment):
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(words[0], words, environment | {"TERM": "xterm-256color"})
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 140, 0, 0))

    def wait(self, seconds):
        """Reads what the agent shows, so that it never waits for its terminal."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.handle], [], [], min(left, 0.2))[0]:
                os.read(self.handle, 65536)

    def type(self, text):
        os.write(self.handle, text)
        self.wait(1)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def drive(run):
    """Lets each of the three calls of the script wait for its user, who allows it."""
    terminal = Terminal(COMMAND[run.agent], run.project, run.environment)
    terminal.wait(BEGINS)
    terminal.type(b"RUN-ASKED please")
    terminal.type(b"\r")
    for number in range(3):
        terminal.wait(ASKS)
        with open(os.path.join(run.project, f"mine{number}.txt"), "w") as file:
            file.write("the person's\n")
        # The last call removes it.
        with open(os.path.join(run.project, "a.txt"), "a") as file:
            file.write(f"mine{number}\n")
        terminal.wait(WORKS)
        # The first answer that agents offer is yes.
        terminal.type(b"\r")
    terminal.wait(ASKS)
    terminal.end()
    run.check("the agent has done its work", not run.has("a.txt") and run.has("made.txt"))
    run.foldspace("log", "project", "--calls")
    run.foldspace("undo", "--run", "last", "--yes")
    kept = [name for name in ("mine0.txt", "mine1.txt", "mine2.txt") if run.has(name)]
    run.check("the person's files are there", len(kept) == 3, " ".join(kept))
    with open(os.path.join(run.project, "calc.py")) as file:
        run.check("the edit is undone", "a + b" in file.read())
    # The others do not tell when their user has answered.
    told = run.agent == "opencode"
    run.check("commands are undone if they are certain", run.has("a.txt") == told and run.has("made.txt") != told)
    if told:
        with open(os.path.join(run.project, "a.txt")) as file:
            run.check("the removed file has the person's lines", file.read().endswith("mine0\nmine1\nmine2\n"))
