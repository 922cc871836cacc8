//! A panicking guest traps, and a trap carries no text: the hook sends it to the
//! host's log first, so that the error about the trap can be understood.

/// Sends panic messages to the log import; called by every entry point.
pub(crate) fn report_to_host() {
    #[cfg(target_arch = "wasm32")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            std::panic::set_hook(Box::new(|info| crate::log::error(&info.to_string())));
        });
    }
}
