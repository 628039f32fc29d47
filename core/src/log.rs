//! Warnings that reach people: through `tracing` where a program has a subscriber, otherwise to
//! stderr.

use std::{
    env, fmt,
    io::{self, Write},
};

use tracing::{dispatcher, subscriber::NoSubscriber};

/// Logs a warning: `warning!("{} is ignored", name)`, with the arguments of `format!`.
///
/// It is an event of `tracing`. A program without a subscriber has it on stderr instead, unless
/// `HALITE_LOG` asks for less than warnings. A stderr that cannot be written to is no error.
#[macro_export]
macro_rules! warning {
    ($($message:tt)+) => {{
        ::tracing::warn!($($message)+);
        $crate::warn_without_subscriber(::core::module_path!(), ::core::format_args!($($message)+));
    }};
}

/// Writes a warning of the module `target` to stderr, if nothing listens to `tracing` and
/// `HALITE_LOG` lets it pass: the second half of [`warning!`](crate::warning).
#[doc(hidden)]
pub fn warn_without_subscriber(target: &str, message: fmt::Arguments<'_>) {
    let has_subscriber = dispatcher::get_default(|dispatch| !dispatch.is::<NoSubscriber>());
    if !has_subscriber && warns(env::var("HALITE_LOG").ok().as_deref(), target) {
        // One write, so that lines of several threads do not mix.
        _ = io::stderr()
            .lock()
            .write_all(format!(" WARN {message}\n").as_bytes());
    }
}

/// Whether warnings of `target` pass a filter as in `HALITE_LOG`: a level, or `target=level`,
/// separated by commas. The most specific target decides. Without a filter they pass; targets that
/// a filter does not mention do not.
fn warns(filter: Option<&str>, target: &str) -> bool {
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
            // A target alone has every level.
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
    fn filter_decides_by_the_most_specific_target() {
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
            assert_eq!(warns(filter, target), passes, "{filter:?}");
        }
    }
}
