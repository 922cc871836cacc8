//! Restarts the victims in turn (SIGTERM), the next when the one before serves again.

blackstart_sdk::register!(fault: blackstart_fault_core::rolling_restart::RollingRestart);
