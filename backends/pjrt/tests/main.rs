//! Integration tests of `halite-pjrt`, in one executable: each links all of its dependencies.

mod collective_timeouts;
mod common;
mod end_of_process;
mod events_and_threads;
mod hostile_programs;
mod launches_over_devices;
mod launching;
mod loading;
mod odd_events;
mod profiling;
mod transfers;
