//! Checks that calls end, and expand to a number of operations that can be run: no function calls
//! itself, through others or not.

use std::collections::HashMap;

use halite_core::Result;

use crate::{Module, OpKind, Operation, Region};

use super::{Place, too_deep};

/// A call of a function.
pub(super) struct CallSite<'a> {
    op: &'a Operation,
    callee: &'a str,
    /// Number of regions around it.
    nesting: usize,
}

/// The calls of an operation.
pub(super) fn sites(op: &Operation, nesting: usize) -> impl Iterator<Item = CallSite<'_>> {
    let (one, more) = match &op.kind {
        OpKind::Call { function } => (Some(function), &[][..]),
        OpKind::Composite { decomposition, .. } => (Some(decomposition), &[][..]),
        OpKind::CustomCall(call) => (None, &*call.functions),
        _ => (None, &[][..]),
    };
    one.into_iter().chain(more).map(move |callee| CallSite {
        op,
        callee,
        nesting,
    })
}

/// Checks the calls of each function: `sites` has an entry for each function of `module`.
pub(super) fn check(module: &Module, sites: &[Vec<CallSite<'_>>]) -> Result<()> {
    let functions = module.functions.iter().enumerate();
    let index: HashMap<&str, usize> = functions.map(|(i, f)| (&*f.name, i)).collect();
    let mut callers = vec![Vec::new(); sites.len()];
    let mut waiting = vec![0usize; sites.len()];
    for (caller, site) in all(sites) {
        callers[index[site.callee]].push((caller, site));
        waiting[caller] += 1;
    }
    // Functions from the leaves up: each after all that it calls.
    let mut ready: Vec<usize> = (0..sites.len()).filter(|&f| waiting[f] == 0).collect();
    let mut nesting = vec![0; sites.len()];
    let functions = module.functions.iter();
    let mut expanded: Vec<usize> = functions.map(|it| operations(&it.body)).collect();
    while let Some(callee) = ready.pop() {
        for &(caller, site) in &callers[callee] {
            nesting[caller] = nesting[caller].max(nesting[callee] + site.nesting + 1);
            if nesting[caller] > Module::MAX_NESTING {
                return Err(Place::Operation(site.op).invalid(too_deep()));
            }
            expanded[caller] = expanded[caller].saturating_add(expanded[callee]);
            if expanded[caller] > Module::MAX_OPERATIONS {
                let (count, most) = (expanded[caller], Module::MAX_OPERATIONS);
                return Err(Place::Operation(site.op).invalid(format!(
                    "the function has {count} operations or more, those of the functions that it \
                     calls included; at most {most} are supported"
                )));
            }
            waiting[caller] -= 1;
            if waiting[caller] == 0 {
                ready.push(caller);
            }
        }
    }
    // A function that still waits calls one that waits, too.
    match all(sites).find(|(_, site)| waiting[index[site.callee]] > 0) {
        Some((_, site)) => Err(Place::Operation(site.op).invalid(
            "the function calls itself, directly or through others; calls must not be recursive",
        )),
        None => Ok(()),
    }
}

/// Number of the operations of a region, with those of its operations' regions.
fn operations(region: &Region) -> usize {
    let nested = region.operations.iter().flat_map(|op| &op.regions);
    region.operations.len() + nested.map(operations).sum::<usize>()
}

fn all<'a, 'b>(sites: &'b [Vec<CallSite<'a>>]) -> impl Iterator<Item = (usize, &'b CallSite<'a>)> {
    let sites = sites.iter().enumerate();
    sites.flat_map(|(caller, sites)| sites.iter().map(move |site| (caller, site)))
}
