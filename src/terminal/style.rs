//! The colours.

use anstyle::{AnsiColor, Style};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
pub(crate) const NOTED: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIRECTORY: Style = AnsiColor::Blue.on_default();
pub(crate) const PLAIN: Style = Style::new();
