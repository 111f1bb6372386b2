//! Limits of a server's open workspaces, and its warm containers.

/// Options for the workspaces of a server.
#[derive(Debug, clap::Args)]
pub(super) struct OpenArgs {
    /// Keeps N containers ready for each image and options that sessions recently used, for the first commands of new
    /// sessions. Needs root and an overlay
    #[cfg(any(feature = "podman", feature = "docker"))]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    warm: Option<u16>,
    /// Limits the open workspaces to N: closes the least recently used ones, with their containers
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    max_open: u32,
}

impl OpenArgs {
    /// Returns the limit for open workspaces.
    pub(super) fn open_max(&self) -> usize {
        self.max_open as usize
    }

    /// Keeps containers ready until the result is dropped.
    #[cfg(any(feature = "podman", feature = "docker"))]
    pub(super) fn keep_warm(&self) -> Option<foldspace::backends::WarmForUsed> {
        self.warm.map(|count| foldspace::backends::WarmForUsed::keep(count.into()))
    }

    #[cfg(not(any(feature = "podman", feature = "docker")))]
    pub(super) fn keep_warm(&self) {}
}
