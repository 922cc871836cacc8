//! Answers every TCP packet of each victim with a reset.

blackstart_sdk::register!(fault: blackstart_fault_core::connection_reset::Fault);
