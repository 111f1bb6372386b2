//! One suite for every kind of disk.
#![expect(clippy::disallowed_methods, reason = "the tests do what programs in a workspace do")]

mod applying;
mod asides;
mod ignoring;
mod keeping;
mod killed;
mod lazy;
mod looking;
mod model;
mod overlays;
mod racing;
mod rig;
mod sharing;
mod shutting;
mod watching;
