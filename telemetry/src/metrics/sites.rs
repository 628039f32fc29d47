//! Transfers by the line of the user's code.

use std::{sync::Mutex, time::Duration};

use halite_core::Transfer;

use super::lock;
use crate::SiteActivity;

/// Transfers by the line of the user's code that made them.
#[derive(Debug, Default)]
pub(crate) struct Sites(Mutex<Vec<SiteActivity>>);

impl Sites {
    pub(crate) fn add(&self, transfer: &Transfer) {
        let Some(location) = transfer.caller else {
            return;
        };
        let mut sites = lock(&self.0);
        // One line may have several addresses, but mostly it has one.
        let known = |site: &SiteActivity| {
            std::ptr::eq(site.location, location) || site.location == location
        };
        let index = sites.iter().position(known).unwrap_or_else(|| {
            sites.push(SiteActivity {
                location,
                count: 0,
                bytes: 0,
                took: Duration::ZERO,
            });
            sites.len() - 1
        });
        let site = &mut sites[index];
        site.count += 1;
        site.bytes += transfer.bytes as u64;
        site.took += transfer.duration();
    }

    pub(super) fn activity(&self) -> Vec<SiteActivity> {
        lock(&self.0).clone()
    }
}
