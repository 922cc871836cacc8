//! Kills the next victim when the one before serves again.

blackstart_sdk::register!(fault: blackstart_fault_core::cascade::Cascade);
