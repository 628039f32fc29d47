//! The one environment variable that this crate sets for plugins.

/// Keeps XLA's own log off stderr, unless the user chose a level: sets `TF_CPP_MIN_LOG_LEVEL=3`.
///
/// Plugins have no other switch for it, and read it when they are loaded. It is set only while this is the process's one
/// thread, which is when a program that opens its accelerator first gets here; otherwise, and where the number of
/// threads cannot be told (elsewhere than on Linux), nothing happens and the plugin writes a few lines.
pub(crate) fn quiet_plugin_logs() {
    const VARIABLE: &str = "TF_CPP_MIN_LOG_LEVEL";
    if std::env::var_os(VARIABLE).is_none() && this_is_the_only_thread() {
        // SAFETY: on this platform no other thread may read or write the environment meanwhile. There is no other thread,
        // and none can start while this one is here.
        unsafe { std::env::set_var(VARIABLE, "3") };
    }
}

fn this_is_the_only_thread() -> bool {
    cfg!(target_os = "linux") && std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_another_thread_alive_the_environment_is_left_alone() {
        // The test runner's own threads count as well; this one makes sure.
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || stopped.recv());
        assert!(!this_is_the_only_thread());
        let before = std::env::var_os("TF_CPP_MIN_LOG_LEVEL");
        quiet_plugin_logs();
        assert_eq!(std::env::var_os("TF_CPP_MIN_LOG_LEVEL"), before);
        drop(stop);
        let _ = other.join();
    }
}
