//! What commands do to the files, compared after each with what is really there.

mod budgets;
mod crowds;
mod drift;
mod endings;
mod entries;
mod images;
mod past;
mod programs;
mod recorded;
mod unprivileged;

/// The same test on every kind of workspace.
macro_rules! everywhere {
    ($($test:ident),+ $(,)?) => {
        mod on_the_host {
            $(#[test] fn $test() { super::$test(crate::rig::Rig::new(crate::rig::Kind::Host).unwrap()); })+
        }
        mod on_an_overlay {
            $(#[test] fn $test() {
                let Some(rig) = crate::rig::Rig::new(crate::rig::Kind::Overlay) else { return };
                super::$test(rig);
            })+
        }
        mod on_a_plain_directory {
            $(#[test] fn $test() {
                let Some(rig) = crate::rig::Rig::new(crate::rig::Kind::Plain) else { return };
                super::$test(rig);
            })+
        }
    };
}

use everywhere;
