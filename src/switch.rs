//! `on` or `off`, as flags and variables spell it.

/// A setting with two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// The setting has its effect.
    On,
    /// It has none.
    Off,
}

impl Switch {
    /// True for `on`.
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}
