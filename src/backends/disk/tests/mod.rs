//! One suite for every kind of disk.
#![expect(clippy::disallowed_methods, reason = "the tests act as programs in a workspace")]

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
