//! Requirements on sessions, commands and tools, seen from outside: a file per group.

mod options;
mod shells;
