//! Warnings: `tracing` events where a program has a subscriber, lines on stderr otherwise.

use std::{
    fmt,
    io::{self, Write},
    sync::{PoisonError, RwLock},
};

use tracing::{dispatcher, subscriber::NoSubscriber};

static FILTER: RwLock<WarningFilter> = RwLock::new(WarningFilter {
    directives: Vec::new(),
});

/// Logs a warning: `warning!("{} is ignored", name)`, with the arguments of `format!`.
///
/// It is a `tracing` event. In a program without a subscriber it goes to stderr, unless the
/// [filter](crate::set_warning_filter) excludes it. Errors of stderr are ignored.
#[macro_export]
macro_rules! warning {
    ($($message:tt)+) => {{
        ::tracing::warn!($($message)+);
        $crate::warn_without_subscriber(::core::module_path!(), ::core::format_args!($($message)+));
    }};
}

/// Sets which warnings a program without a `tracing` subscriber prints to stderr; all by default.
/// Opening an accelerator sets the filter in `HALITE_LOG`.
pub fn set_warning_filter(filter: WarningFilter) {
    *FILTER.write().unwrap_or_else(PoisonError::into_inner) = filter;
}

/// Writes a warning of the module `target` to stderr, if there is no `tracing` subscriber and the
/// filter includes it: the second half of [`warning!`](crate::warning).
#[doc(hidden)]
pub fn warn_without_subscriber(target: &str, message: fmt::Arguments<'_>) {
    let has_subscriber = dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    if has_subscriber {
        return;
    }
    let filter = FILTER.read().unwrap_or_else(PoisonError::into_inner);
    if filter.includes(target) {
        // One write, so that lines of several threads do not mix.
        _ = io::stderr()
            .lock()
            .write_all(format!(" WARN {message}\n").as_bytes());
    }
}

/// Modules whose warnings are printed. The default includes all.
///
/// ```
/// use halite_core::WarningFilter;
///
/// let filter = WarningFilter::parse("warn,halite_nn=off");
/// assert!(filter.includes("halite_train::fit"));
/// assert!(!filter.includes("halite_nn::jit"));
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WarningFilter {
    /// Prefixes of modules, and whether their warnings are printed.
    directives: Vec<(String, bool)>,
}

impl WarningFilter {
    /// Parses a list of levels and `module=level`, separated by commas, as in `RUST_LOG`. The most
    /// specific module decides, and modules that the list does not mention are excluded. An empty
    /// text includes all.
    pub fn parse(text: &str) -> Self {
        if text.trim().is_empty() {
            return WarningFilter::default();
        }
        WarningFilter {
            directives: text.split(',').map(directive).collect(),
        }
    }

    /// Returns whether warnings of the module `target` are printed.
    pub fn includes(&self, target: &str) -> bool {
        let matching = (self.directives.iter()).filter(|(name, _)| target.starts_with(&**name));
        let most_specific = matching.max_by_key(|(name, _)| name.len());
        most_specific.map_or(self.directives.is_empty(), |(_, included)| *included)
    }
}

/// Parses `warn`, `module` or `module=warn`.
fn directive(text: &str) -> (String, bool) {
    let (name, level) = text.split_once('=').unwrap_or(("", text));
    match includes_warnings(level) {
        Some(included) => {
            let name = name.split('[').next().unwrap_or_default().trim();
            (name.to_string(), included)
        }
        // A module without a level includes every level.
        None => (level.trim().to_string(), true),
    }
}

/// Returns whether a level includes warnings; `None` if it is not a level.
fn includes_warnings(level: &str) -> Option<bool> {
    match level.trim().to_ascii_lowercase().as_str() {
        "off" | "error" | "0" | "1" => Some(false),
        "warn" | "info" | "debug" | "trace" | "2" | "3" | "4" | "5" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_target_of_filter_decides() {
        let target = "halite_nn::jit";
        for (filter, passes) in [
            ("", true),
            ("warn", true),
            ("DEBUG", true),
            ("error", false),
            ("off", false),
            ("halite_nn=debug", true),
            ("halite_train=debug", false),
            ("warn,halite_nn=off", false),
            ("off,halite_nn::jit=info", true),
            ("halite_nn", true),
        ] {
            let parsed = WarningFilter::parse(filter);
            assert_eq!(parsed.includes(target), passes, "{filter:?}");
        }
        assert!(WarningFilter::default().includes(target));
    }
}
