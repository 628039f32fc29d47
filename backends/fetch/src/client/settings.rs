//! The user's settings of a client: those that say how to reach a registry count, and none else.
//!
//! A setting for work on projects, such as `PIP_REQUIRE_VIRTUALENV` or npm's `pack-destination`,
//! makes the download of one pinned archive fail, or puts it elsewhere. Variables are removed here;
//! what files set is overridden by the commands, as far as the client has a way to.

use std::{env, process::Command};

/// Settings of pip for indexes, proxies and certificates.
pub(super) const PIP: Kept = Kept {
    prefix: "pip_",
    names: &[
        "index_url",
        "extra_index_url",
        "pypi_url",
        "no_index",
        "find_links",
        "trusted_host",
        "proxy",
        "cert",
        "client_cert",
        "timeout",
        "default_timeout",
        "resume_retries",
        "keyring_provider",
        "use_feature",
        "use_deprecated",
        "config_file",
        "log",
    ],
};

/// Settings of npm for registries, proxies and certificates.
pub(super) const NPM: Kept = Kept {
    prefix: "npm_config_",
    names: &[
        "registry",
        "proxy",
        "https_proxy",
        "noproxy",
        "ca",
        "cafile",
        "cert",
        "key",
        "strict_ssl",
        "offline",
        "prefer_offline",
        "fetch_timeout",
        "local_address",
        "maxsockets",
        "userconfig",
        "globalconfig",
        "always_auth",
        "username",
        "email",
        "_auth",
        "_authtoken",
        "_password",
    ],
};

/// Settings of a client that reach its commands.
pub(super) struct Kept {
    /// Start of the client's variables, in lower case.
    prefix: &'static str,
    /// In lower case, with `_` between words.
    names: &'static [&'static str],
}

impl Kept {
    /// Removes all other variables of the client from the environment of a command.
    pub(super) fn alone(&self, command: &mut Command) {
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| self.drops(name)) {
                command.env_remove(name);
            }
        }
    }

    fn drops(&self, variable: &str) -> bool {
        let lower = variable.to_ascii_lowercase();
        let Some(name) = lower.strip_prefix(self.prefix) else {
            return false;
        };
        // `npm_config_//registry.npmjs.org/:_authToken`, `npm_config_@scope:registry`.
        let of_registry = name.starts_with("//") || name.starts_with('@');
        !of_registry && !self.names.contains(&&*name.replace('-', "_"))
    }
}

/// What to do about a failure: `network` if the client's words are about a connection, or it said
/// nothing.
pub(super) fn advice(output: &str, network: &'static str) -> &'static str {
    const SIGNS: [&str; 16] = [
        "connect",
        "network",
        "proxy",
        "certificate",
        "ssl",
        "timed out",
        "timeout",
        "resolve",
        "resolution",
        "unreachable",
        "retries",
        "enotfound",
        "eai_again",
        "no matching distribution",
        " http error",
        "(nothing)",
    ];
    let lower = output.to_lowercase();
    match SIGNS.iter().any(|sign| lower.contains(sign)) {
        true => network,
        false => {
            "Its own words say why; where they are about a setting, change that of the client \
             (`pip config debug` and `npm config list` name the files)"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_networks_stay() {
        for name in [
            "PIP_INDEX_URL",
            "PIP_CERT",
            "PIP_PROXY",
            "PIP_CONFIG_FILE",
            "PATH",
            "PIPX",
        ] {
            assert!(!PIP.drops(name), "{name}");
        }
        for name in [
            "PIP_REQUIRE_VIRTUALENV",
            "PIP_TARGET",
            "PIP_USER",
            "PIP_DRY_RUN",
            "PIP_ISOLATED",
        ] {
            assert!(PIP.drops(name), "{name}");
        }
        for name in [
            "npm_config_registry",
            "NPM_CONFIG_HTTPS_PROXY",
            "npm_config_strict-ssl",
            "npm_config_@scope:registry",
            "npm_config_//host/:_authToken",
        ] {
            assert!(!NPM.drops(name), "{name}");
        }
        for name in [
            "npm_config_pack_destination",
            "npm_config_dry-run",
            "NPM_CONFIG_BEFORE",
        ] {
            assert!(NPM.drops(name), "{name}");
        }
    }

    #[test]
    fn network_is_named_for_errors_of_connections() {
        let of = |output| advice(output, "network");
        assert_eq!(of("npm error code ENOTFOUND"), "network");
        assert_eq!(of("ERROR: Could not connect to proxy"), "network");
        assert_eq!(of("  (nothing)"), "network");
        assert_ne!(
            of("ERROR: Could not find an activated virtualenv (required)."),
            "network"
        );
    }
}
