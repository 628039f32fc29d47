//! Warnings: `tracing` events where a program has a subscriber, lines on stderr otherwise.

use std::{
    env, fmt,
    io::{self, Write},
};

use tracing::{dispatcher, subscriber::NoSubscriber};

/// Logs a warning: `warning!("{} is ignored", name)`, with the arguments of `format!`.
///
/// It is a `tracing` event. In a program without a subscriber it goes to stderr, unless
/// `HALITE_LOG` excludes warnings. Errors of stderr are ignored.
#[macro_export]
macro_rules! warning {
    ($($message:tt)+) => {{
        ::tracing::warn!($($message)+);
        $crate::warn_without_subscriber(::core::module_path!(), ::core::format_args!($($message)+));
    }};
}

/// Writes a warning of the module `target` to stderr, if there is no `tracing` subscriber and
/// `HALITE_LOG` includes it: the second half of [`warning!`](crate::warning).
#[doc(hidden)]
pub fn warn_without_subscriber(target: &str, message: fmt::Arguments<'_>) {
    let has_subscriber = dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    if !has_subscriber && includes_warnings(env::var("HALITE_LOG").ok().as_deref(), target) {
        // One write, so that lines of several threads do not mix.
        _ = io::stderr()
            .lock()
            .write_all(format!(" WARN {message}\n").as_bytes());
    }
}

/// Returns whether a filter as in `HALITE_LOG` includes warnings of `target`. A filter is a list,
/// separated by commas, of levels and `target=level`; the most specific target decides. No filter
/// includes all warnings, and a filter excludes targets that it does not mention.
fn includes_warnings(filter: Option<&str>, target: &str) -> bool {
    let passes = |level: &str| match level.trim().to_ascii_lowercase().as_str() {
        "off" | "error" | "0" | "1" => Some(false),
        "warn" | "info" | "debug" | "trace" | "2" | "3" | "4" | "5" => Some(true),
        _ => None,
    };
    let Some(filter) = filter.map(str::trim).filter(|filter| !filter.is_empty()) else {
        return true;
    };
    let directive = |text: &str| {
        let (name, level) = text.split_once('=').unwrap_or(("", text));
        match passes(level) {
            Some(passes) => (
                name.split('[')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_string(),
                passes,
            ),
            // A target without a level includes every level.
            None => (level.trim().to_string(), true),
        }
    };
    let matching = filter
        .split(',')
        .map(directive)
        .filter(|(name, _)| target.starts_with(name.as_str()));
    matching
        .max_by_key(|(name, _)| name.len())
        .is_some_and(|(_, passes)| passes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_target_of_filter_decides() {
        let target = "halite_nn::jit";
        for (filter, passes) in [
            (None, true),
            (Some(""), true),
            (Some("warn"), true),
            (Some("DEBUG"), true),
            (Some("error"), false),
            (Some("off"), false),
            (Some("halite_nn=debug"), true),
            (Some("halite_train=debug"), false),
            (Some("warn,halite_nn=off"), false),
            (Some("off,halite_nn::jit=info"), true),
            (Some("halite_nn"), true),
        ] {
            assert_eq!(includes_warnings(filter, target), passes, "{filter:?}");
        }
    }
}
