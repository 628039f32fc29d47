//! Plugins that call back twice, call back and fail, or take no callback.

use crate::faults::commands::Faulty;

#[test]
fn callback_called_twice_runs_once() {
    let plugin = Faulty::new("calls-twice");
    plugin.devices().succeeds();
    plugin.train().succeeds();
    plugin.check("events::callback_runs_once").succeeds();
}

#[test]
fn call_that_calls_back_then_fails_ends_once() {
    let plugin = Faulty::new("calls-and-fails");
    plugin.devices().succeeds();
    // Work that is done calls back before the error is returned.
    (plugin.train()).succeeds_or_fails_with(&["refused on purpose"]);
    plugin.check("events::callback_on").succeeds();
}

#[test]
fn refused_callback_is_an_error() {
    let plugin = Faulty::new("refuses-callbacks");
    // The completion of copies to the host is polled, and work that is done needs no callback.
    plugin.devices().succeeds();
    (plugin.train()).succeeds_or_fails_with(&["refused on purpose"]);
    plugin
        .check("events::callback_on")
        .fails_with(&["got Ok(false), want Ok(true)"]);
}
